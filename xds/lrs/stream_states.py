"""What is known of the streams that report load, and of how often clients report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReportStream:
    """A load report stream of a node. Times are epoch seconds; ``reported`` is 0 before the first report.

    ``refused`` counts invalid cluster reports, ``left_out`` values beyond a bound on memory. ``api`` is ``v2`` on the
    v2 transport, else empty. ``principal`` is the authenticated principal of the connection.
    """

    id: int
    peer: str
    api: str
    opened: float
    reported: float
    reports: int
    refused: int
    left_out: int
    principal: str = ""


@dataclass(frozen=True, slots=True)
class ReportingState:
    """How often clients report. ``set_s`` is the interval of the settings; ``interval_s`` is longer under load.

    ``share`` is the part of a CPU core that reading reports took when it was last measured.
    """

    interval_s: float
    set_s: float
    share: float = 0.0
