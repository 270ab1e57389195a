"""Metrics of the watched directory."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.server.metrics import PREFIX

_TEXT = "Groups whose files in the watched directory cannot be applied, and the directory itself if it cannot be read"


class WatchMetrics(Collector):
    """How much of the directory is not applied; ``refused`` is empty where none is watched."""

    def __init__(self, refused: Sized) -> None:
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(f"{PREFIX}watch_refused", _TEXT, value=len(self._refused))
