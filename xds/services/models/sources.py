"""The JSON of sources of instances, and of the state of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """Something of a source that is left out.

    * ``service``: the name of the service; empty if it is about none;
    * ``pointer``: the JSON pointer of the place in the input; may be empty;
    * ``source``: the place in a file, as ``FILE:LINE:COLUMN``; empty if it is about none;
    * ``hint``: how to correct it; may be empty.
    """

    service: str
    code: str
    detail: str
    pointer: str
    source: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A source of instances, and how it is.

    * ``name``: its name;
    * ``kind``: its kind, such as ``consul``;
    * ``state``: ``starting`` (not read since the start), ``reading``, ``failing`` (it cannot be read), or ``removed``
      (the settings no longer have it, and its instances drain);
    * ``message``: why it fails; empty if it does not;
    * ``read_at``: when it was read last; null before the first time;
    * ``read_age_s``: seconds since then; null before the first time;
    * ``failing_since``: since when it cannot be read; null if it can;
    * ``retry_at``: when it is started again; null while it runs;
    * ``failures_n``: how often it could not be read;
    * ``restarts_n``: how often it ended and was started again;
    * ``changes_n``: the number of changes of services that it has shown;
    * ``services_n``: the number of its services;
    * ``instances_n``: the number of its instances;
    * ``waiting_n``: the number of services whose latest change waits because of ``changes_per_s``;
    * ``waiting_s``: for how many seconds the oldest of them has waited; 0 if none waits;
    * ``held``: the names of some services of which a loss is held;
    * ``held_n``: the number of these services;
    * ``findings``: some of what is left out;
    * ``findings_n``: the number of findings;
    * ``trouble``: all of it in words; empty if nothing is wrong.
    """

    schema_name: ClassVar[str] = "SourceStateItem"

    name: str
    kind: str
    state: str
    trouble: str
    message: str
    read_at: datetime | None
    read_age_s: float | None
    failing_since: datetime | None
    retry_at: datetime | None
    failures_n: int
    restarts_n: int
    changes_n: int
    services_n: int
    instances_n: int
    waiting_n: int
    waiting_s: float
    held: tuple[str, ...]
    held_n: int
    findings: tuple[SourceFinding, ...]
    findings_n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePage:
    """A page of sources, by name."""

    items: tuple[SourceState, ...]
    next_page_token: str = ""
