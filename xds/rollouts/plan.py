"""The plan of a rollout: which proxies get a push first, how long each wave is watched, and what happens on a failure.

A plan as JSON: ``{"waves": ["1", "10%", "50%"], "selector", "nodes": [id], "hold_s", "timeout_s", "max_nacks",
"max_errors", "on_failure"}``, or only the text of its waves: ``"1,10%,50%"``. What is missing has its default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from xds.model.errors import Violation
from xds.model.units import UNIT_S
from xds.rollouts.reading import FieldReader

WAVES_LIMIT = 20
NODES_LIMIT = 1_000  # ids that a document lists
TIME_LIMIT_S = UNIT_S["d"]
NACKS_LIMIT = 1_000_000
DEFAULT_MAX_ERRORS = 0.02

_COUNT = re.compile(r"[0-9]{1,9}")
_PERCENT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?%")
_FIELDS = ("waves", "selector", "nodes", "hold_s", "timeout_s", "max_nacks", "max_errors", "on_failure")


class OnFailure(StrEnum):
    """What a failed rollout does: go back to the base, or stay as it is until somebody decides."""

    ROLLBACK = "rollback"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Wave:
    """The size of a wave: a number of nodes, or the percentage of all. Neither: the nodes that the plan names."""

    count: int = 0
    percent: float = 0.0

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.percent else str(self.count) if self.count else "named"

    @property
    def share(self) -> float:
        """The fraction of all nodes."""
        return self.percent / 100.0


NAMED = Wave()
ALL = Wave(percent=100.0)


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """How a push is rolled out. The last wave is always all nodes, whether it is written or not.

    * ``waves``: sizes as they are written, rising; counts come before shares;
    * ``selector``, ``nodes``: if there are any, these nodes are a wave before ``waves``, and belong to all waves;
    * ``hold_s``: how long all nodes of a wave must have ACKed, without break, before the next wave begins;
    * ``timeout_s``: how long a wave may take until all its nodes have ACKed;
    * ``max_nacks``: more nodes that NACK are a failure;
    * ``max_errors``: a larger failed share of requests, above that of the other nodes, is a failure. In a plan, None is
      the default: `DEFAULT_MAX_ERRORS` if the proxies report load when the rollout begins, else no bound. In a rollout
      None is no bound. 1 is never exceeded.
    """

    waves: tuple[Wave, ...] = (Wave(count=1), Wave(percent=10.0), Wave(percent=50.0))
    selector: str = ""
    nodes: tuple[str, ...] = ()
    hold_s: float = 60.0
    timeout_s: float = 300.0
    max_nacks: int = 0
    max_errors: float | None = None
    on_failure: OnFailure = OnFailure.ROLLBACK

    @property
    def steps(self) -> tuple[Wave, ...]:
        """All waves, with that of the named nodes and that of all nodes."""
        first = (NAMED,) if self.selector or self.nodes else ()
        return (*first, *(wave for wave in self.waves if wave != ALL), ALL)


DEFAULT_PLAN = RolloutPlan()


def read_plan(document: object, at: str = "/rollout", defaults: RolloutPlan = DEFAULT_PLAN) -> RolloutPlan:
    """The plan in a JSON document. Compiling its selector may take long, so call this in a thread.

    Raises ``ValidationError`` with all findings, each with its pointer.
    """
    fields = FieldReader({"waves": document} if isinstance(document, str) else document, at, _FIELDS)
    plan = RolloutPlan(
        waves=_read_waves(fields, at if isinstance(document, str) else f"{at}/waves", defaults),
        selector=fields.selector("selector", defaults.selector).strip(),
        nodes=fields.texts("nodes", defaults.nodes, NODES_LIMIT),
        hold_s=fields.number("hold_s", defaults.hold_s, 0.0, TIME_LIMIT_S),
        timeout_s=fields.number("timeout_s", defaults.timeout_s, 1.0, TIME_LIMIT_S),
        max_nacks=fields.integer("max_nacks", defaults.max_nacks, 0, NACKS_LIMIT),
        max_errors=_read_max_errors(fields, defaults),
        on_failure=fields.choice("on_failure", defaults.on_failure),
    )
    if plan.hold_s > plan.timeout_s:
        detail = f"of {plan.hold_s:g} s is longer than timeout_s, {plan.timeout_s:g} s"
        fields.add("out_of_range", "hold_s", detail, "give a longer timeout_s, too: --timeout")
    if not plan.waves and not plan.selector and not plan.nodes and not fields.findings:
        fields.add("invalid_value", "waves", "must name at least one wave", "such as 1,10%,50%")
    fields.finish()
    return plan


def plan_document(plan: RolloutPlan) -> dict[str, Any]:
    """A plan as JSON, defaults included."""
    values = {name: getattr(plan, name) for name in _FIELDS}
    return {**values, "waves": [str(wave) for wave in plan.waves], "nodes": list(plan.nodes)}


def _read_waves(fields: FieldReader, at: str, defaults: RolloutPlan) -> tuple[Wave, ...]:
    given = fields.given("waves")
    if given is None:
        return defaults.waves
    items = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(items, list) or len(items) > WAVES_LIMIT:
        detail = f"waves must be a list of at most {WAVES_LIMIT} waves"
        fields.findings.append(Violation("wrong_type", detail, pointer=at, hint='such as ["1", "10%", "50%"]'))
        return defaults.waves
    waves: list[Wave] = []
    for index, item in enumerate(items):
        read = _read_wave(item, waves)
        if isinstance(read, Wave):
            waves.append(read)
        else:
            pointer = at if isinstance(given, str) else f"{at}/{index}"
            fields.findings.append(Violation("invalid_value", f"wave {item!r:.40} {read}", pointer=pointer))
    return tuple(waves)


def _read_wave(item: object, before: list[Wave]) -> Wave | str:
    """The wave, or what is wrong with it."""
    text = str(item) if type(item) is int else item
    count = _COUNT.fullmatch(text) if isinstance(text, str) else None
    percent = _PERCENT.fullmatch(text) if isinstance(text, str) else None
    last = before[-1] if before else NAMED
    if count:
        wave = Wave(count=int(count[0]))
        if not 1 <= wave.count <= NODES_LIMIT:
            return f"must be between 1 and {NODES_LIMIT} nodes; write a share for more"
        if last.percent:
            return "must be a share, because the wave before is one"
    elif percent:
        wave = Wave(percent=float(percent[1]))
        if not 0 < wave.percent <= 100:
            return "must be more than 0% and at most 100%"
    else:
        return "must be a number of nodes such as 1, or a share such as 10%"
    is_larger = wave.count > last.count or wave.percent > last.percent
    return wave if is_larger else f"must be larger than the wave before, {last}"


def _read_max_errors(fields: FieldReader, defaults: RolloutPlan) -> float | None:
    given = fields.given("max_errors")
    percent = _PERCENT.fullmatch(given) if isinstance(given, str) else None
    if given is None or (percent and float(percent[1]) <= 100):
        return float(percent[1]) / 100.0 if percent else defaults.max_errors
    return fields.number("max_errors", 1.0, 0.0, 1.0)
