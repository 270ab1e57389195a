"""How much of a fleet's load is kept. What a bound keeps out is counted under the bound's name.

A window of traffic takes some 5.5 kB: three counters, each with 120 seconds and 62 minutes of eight bytes. So all
windows take 360 MB at most, those of a thousand clusters between three localities and three 50 MB. A strip takes 260 to
460 bytes for each of its services: 55 MB at most.
"""

from __future__ import annotations

from typing import NamedTuple

SECONDS = 120  # for which reports are kept by the second
MINUTES = 62  # an hour, wherever in a minute it begins, and what comes late
ODD_REPORTS = 16  # kept apart in a window
LAYOUTS_LIMIT = 64  # in which localities come, known to a service; others take longer to count
STRIPS_LIMIT = 4  # of one service: orders in which clients name it among others
STRIP_LEAST = 4  # services; fewer are counted one by one
WINDOW_LIMIT_S = 3_600.0
POINTS_LIMIT = 720  # of a series


class Bounds(NamedTuple):
    """``sources`` are localities by group, ``services`` (source, cluster, service name).

    ``windows`` are all of traffic, drops and metrics. ``made_by_stream`` is how many of both a stream may bring in an
    hour, so that one client cannot use up what is there for all. ``latest_bytes`` is of the latest reports, as they
    came, over all streams.
    """

    sources: int = 256
    services: int = 30_000
    windows: int = 65_536
    targets: int = 128  # of a service
    endpoints: int = 1_024  # likewise
    metrics: int = 256  # likewise
    categories: int = 32  # of drops, likewise; what is above has none
    made_by_stream: int = 25_000
    clusters: int = 20_000  # of one report
    pages: int = 64  # of one stream
    latest_bytes: int = 256 << 20
    nodes_gone: int = 1_000


IDLE_S = 3_600.0  # what nobody reported for so long is forgotten
IDLE_WHEN_FULL_S = 120.0  # likewise, where a bound is reached
SWEEP_S = 600.0
SWEEP_WHEN_FULL_S = 10.0
