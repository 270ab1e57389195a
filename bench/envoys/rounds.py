"""One kind of push to both sides, in turn, under load: a cell of figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.envoys.kinds import Kind, Push
from bench.envoys.scale import Scale
from bench.envoys.sides import Ours, Side, expected
from bench.envoys.site import ACK_TIMEOUT_S, Site
from bench.suite.process import cpu_s, quiet
from bench.suite.results import Figures
from tests.support.resources import CLUSTER_TYPE

MS, US = 1e3, 1e6
Json = dict[str, Any]


@dataclass(slots=True)
class Account:
    """What is gathered of a side over the rounds of a kind. ``removals`` are the tap's numbers, and when pushed.

    ``aside_s`` is CPU of the server that is not that of pushes: what it was told before, what it was asked behind.
    """

    figures: dict[str, list[float]] = field(default_factory=dict)
    aside_s: float = 0.0
    removals: list[tuple[int, float]] = field(default_factory=list)
    began_cpu_s: float = 0.0
    began_at: float = 0.0

    def note(self, name: str, *values: float) -> None:
        """Keep values of a figure."""
        self.figures.setdefault(name, []).extend(values)


def measure(site: Site, kind: Kind, scale: Scale, idle: Mapping[str, float]) -> tuple[Figures, Json]:
    """The figures of both sides, and conditions that came of it: what was lost, in words.

    ``idle`` is what each server takes of a core while nothing is pushed. A first push of each side is not kept.
    """
    accounts = {side.name: Account() for side in site.sides}
    _round(site, kind, {side.name: Account() for side in site.sides}, 0.0)
    site.tap.forget()
    for side in site.sides:
        site.traffic.load(side.name, site.fleets[side.name].ports[kind.listener], scale)
    time.sleep(scale.pause_s)
    for side in site.sides:
        accounts[side.name].began_at, accounts[side.name].began_cpu_s = time.monotonic(), cpu_s(side.pid)
    for _ in range(scale.rounds):
        _round(site, kind, accounts, scale.pause_s)
    time.sleep(scale.trailing_s if kind.removes else scale.pause_s)
    for side in site.sides if kind.removes else ():
        _note_whole(side, site, accounts[side.name], idle[side.name])
    return _end(site, accounts)


def idle_shares(site: Site, seconds: float) -> dict[str, float]:
    """The share of a core that each server takes while nothing is pushed, once it is done with what was."""
    for side in site.sides:
        _quiet_s(side)
    before = {side.name: cpu_s(side.pid) for side in site.sides}
    time.sleep(seconds)
    return {side.name: (cpu_s(side.pid) - before[side.name]) / seconds for side in site.sides}


def _round(site: Site, kind: Kind, accounts: Mapping[str, Account], pause_s: float) -> None:
    change = site.change(kind)
    for side in site.sides:
        _push(site, side, change, accounts[side.name])
        time.sleep(pause_s)


def _push(site: Site, side: Side, change: Push, account: Account) -> None:
    """Push, wait for the last Envoy's ACK and for the server to be done with it."""
    count = len(site.fleets[side.name].names)
    with _aside(side, account):
        prepared = side.prepare(change)
    number = site.tap.expect(side.name, expected(prepared))
    gone = [one for one in change.delete if one[0] == CLUSTER_TYPE]
    removal = site.tap.expect(side.name, {"present": [], "absent": gone}) if gone else 0
    before_s = cpu_s(side.pid)
    asked = side.push(prepared)
    acked = site.tap.acked(number, count, ACK_TIMEOUT_S)
    assert len(acked) == count, f"{side.name}: {len(acked)} of {count} ACKed a push; refused: {site.tap.forget()}"
    spent_s = _quiet_s(side) - before_s
    took_ms = [(at - asked) * MS for at in acked.values()]
    account.note("ack_ms", *took_ms)
    account.note("last_ms", max(took_ms))
    account.note("cpu_us", spent_s / count * US)
    if isinstance(side, Ours):
        with _aside(side, account):
            account.note("told_ms", *side.told_ms())
    if removal:
        account.removals.append((removal, asked))


@contextmanager
def _aside(side: Side, account: Account) -> Iterator[None]:
    before_s = cpu_s(side.pid)
    yield
    account.aside_s += _quiet_s(side) - before_s


def _quiet_s(side: Side) -> float:
    """The CPU of a server once it has nothing left to do."""
    return asyncio.run(quiet(lambda: cpu_s(side.pid)))


def _note_whole(side: Side, site: Site, account: Account, idle: float) -> None:
    """CPU of all that the pushes led to, removals included, and when those were ACKed."""
    count = len(site.fleets[side.name].names)
    lasted_s = time.monotonic() - account.began_at
    spent_s = cpu_s(side.pid) - account.began_cpu_s - account.aside_s - idle * lasted_s
    account.note("whole_us", spent_s / count / len(account.figures["last_ms"]) * US)
    for number, asked in account.removals:
        acked = site.tap.acked(number, count, 0.0)
        if len(acked) == count:
            account.note("removed_s", max(acked.values()) - asked)


def _end(site: Site, accounts: Mapping[str, Account]) -> tuple[Figures, Json]:
    counts = site.traffic.stop()
    refused = site.tap.forget()
    for name, fleet in site.fleets.items():
        fleet.check()
        accounts[name].note("lost", float(counts[name]["lost"]))
        accounts[name].note("requests", float(counts[name]["requests"]))
    samples = {name: found["samples"] for name, found in counts.items() if found["samples"]}
    return {name: account.figures for name, account in accounts.items()}, {"samples": samples, "refused": refused}
