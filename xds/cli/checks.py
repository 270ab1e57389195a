"""What ``xds validate`` checks, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from xds.cli.client import Client

if TYPE_CHECKING:
    from xds.cli.files import Text
    from xds.model.errors import Violation
    from xds.model.resource import Resource


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks beyond the files themselves.

    ``envoy`` is a binary that also validates; ``live`` is a server whose content and policies are compared;
    ``descriptor_sets`` are files with message types, ``policies`` files with traffic assignment policies,
    ``bootstraps`` files with bootstraps of Envoys that are to take the resources.
    """

    envoy: Path | None = None
    live: Client | None = None
    descriptor_sets: tuple[Path, ...] = ()
    timeout_s: float = 60.0
    policies: tuple[Path, ...] = ()
    bootstraps: tuple[Path, ...] = ()


@dataclass(slots=True)
class Checked:
    """The result for the files of one group: the resources that could be read, and the findings."""

    group: str
    resources: list[Resource] = field(default_factory=list)
    findings: list[Violation] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
