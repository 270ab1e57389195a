"""The contract of a source: where instances come from (docs/services.md#sources).

A source observes some system and gives what it sees to its sink. It keeps nothing itself: the catalog keeps the last
good set while the source is gone, holds back sudden losses and drains what goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from xds.catalog.instance import Instance
from xds.model.errors import Violation, XdsError

Instances = Sequence[Instance]


class SourceError(XdsError):
    """The source cannot be read now. The message says what was asked, and what the answer was."""


class Sink(Protocol):
    """Where one source puts what it observes. All methods return at once; what they change reaches proxies soon."""

    def put(self, service: str, instances: Instances) -> None:
        """The present instances of a service, all of them. Instances with findings are left out and reported."""

    def remove(self, service: str) -> None:
        """The service is gone from the source, with all of its instances."""

    def replace(self, services: Mapping[str, Instances]) -> None:
        """Everything that the source has: a service that is not named is gone."""

    def alive(self) -> None:
        """The source was read, and nothing has changed since."""

    def failed(self, message: str) -> None:
        """The source cannot be read now. It continues to try; its last good set stays in force."""

    def rejected(self, findings: Sequence[Violation]) -> None:
        """Something in the source cannot be used and is left out; ``pointer`` of a finding names the place."""

    def wanted(self) -> frozenset[str]:
        """The names of the services that something here uses."""

    async def wait_for_wanted(self, seen: frozenset[str]) -> frozenset[str]:
        """``wanted``, as soon as it differs from ``seen``."""


class Source(Protocol):
    """One source. ``name`` is chosen by the operator and unique, ``kind`` says what it reads (``consul``, ``dns``)."""

    @property
    def name(self) -> str:
        """The name in settings, metrics, events and listings."""

    @property
    def kind(self) -> str:
        """What it reads."""

    async def run(self, sink: Sink) -> None:
        """Observe until cancelled.

        An exception ends this run only: it is reported, and ``run`` is called again after a growing delay. Faults that
        a source expects, such as a server that does not answer, it reports by ``sink.failed`` and retries itself.
        """
