"""Demand and assignment over several servers: as if all load streams were at one."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.cluster.conftest import Site
from tests.steering.assigned import GROUP, KEY, A, B, Reports, Steered, cluster, connect, endpoints, policy
from tests.support.plane import Plane
from xds.admin.other_servers import Answers, Asked, NoOthers
from xds.fleet.senders import Reporting
from xds.lrs.figures import ClusterDemand, Flow, SourceDemand
from xds.model.load_report import Metric
from xds.model.node import Locality
from xds.steering.core.assignment import Standing
from xds.steering.demand_of_others import (
    DemandOfOthers,
    MeasuredDemand,
    WantedDemand,
    added,
    read_answer,
    write_answer,
)
from xds.steering.served import ServedSteering
from xds.store.member_register import Member

WANTED = WantedDemand(GROUP, "web", "web", 1.0)


class Answer:
    """The answer of a server that measured this."""

    def __init__(self, document: dict[str, Any] | None) -> None:
        self.status = 200 if document is not None else 500
        self.is_success = document is not None
        self.headers: dict[str, str] = {}
        self.body = json.dumps(document).encode()

    def document(self) -> Any:
        return json.loads(self.body)


class Others(NoOthers):
    """Other servers that measure what their reports say; those in ``silent`` do not answer."""

    me = "a"

    def __init__(self, steered: dict[str, Steered]) -> None:
        self.steered = steered
        self.silent: set[str] = set()
        self.asked_n = 0

    def names(self) -> list[str]:
        return [*self.steered]

    async def ask(self, asked: Asked) -> Answers:
        self.asked_n += 1
        assert isinstance(asked.body, dict)
        wanted = [WantedDemand(**each) for each in asked.body["wanted"]]
        received = {
            name: Answer(write_answer({each.key: one.assignments.measured(each) for each in wanted}))
            for name, one in self.steered.items()
            if name not in self.silent
        }
        return Answers(received, tuple(self.silent))


async def steered(others: Any = None) -> Steered:
    plane = Plane()
    await plane.store.open()
    made = Steered(plane, Reports())
    if others is not None:
        made.assignments._others = DemandOfOthers(others)
    await plane.publisher.push(GROUP, [cluster(), endpoints()])
    return made


def measured(source: Locality, rps: float, until: float = 100.0, **metrics: tuple[int, float]) -> MeasuredDemand:
    flow = Flow(source, A, rps, 1.0, 2, {name: Metric(*each) for name, each in metrics.items()}, 0.5)
    demand = SourceDemand(source, rps, 1.0, 2.0, 3, 4, until, rps + 1, 0.25, 0.5)
    return MeasuredDemand(ClusterDemand("web", 10.0, until, (demand,), (flow,)), {source: Reporting(4, 1, 2)})


def test_what_was_measured_is_told_as_it_is() -> None:
    told = {("g", "c"): measured(A, 10.0, cpu=(3, 1.5)), ("g", "d"): measured(Locality(), 0.0)}
    assert read_answer(json.loads(json.dumps(write_answer(told)))) == told


def test_what_servers_measured_is_added_up() -> None:
    both = added([measured(A, 10.0, 100.0, cpu=(1, 2.0)), measured(A, 30.0, 90.0, cpu=(3, 4.0)), measured(B, 5.0)])
    at_a, at_b = both.reported.sources
    assert at_a == SourceDemand(A, 40.0, 2.0, 4.0, 6, 8, 100.0, 42.0, 0.5, 1.0) and at_b.rps == 5.0
    assert both.reported.until == 90.0
    assert both.reported.flows[0] == Flow(A, A, 40.0, 2.0, 4, {"cpu": Metric(4, 6.0)}, 1.0)
    assert both.senders == {A: Reporting(8, 2, 4), B: Reporting(4, 1, 2)}
    assert added([measured(A, 1.0)]) == measured(A, 1.0)


def test_a_node_that_reports_to_another_server_than_it_gets_its_configuration_from_is_not_silent() -> None:
    """Its load would count more than once: once reported, and again for the nodes that do not report."""
    here = replace(measured(A, 10.0), senders={A: Reporting(1, 3, 1)})
    there = replace(measured(A, 30.0), senders={}, apart={A: Reporting(2, settled=1), B: Reporting(5)})
    assert added([here, there]).senders == {A: Reporting(3, 1, 2)}
    assert added([here, replace(there, apart={A: Reporting(9, settled=9)})]).senders == {A: Reporting(4, 0, 4)}
    assert read_answer(json.loads(json.dumps(write_answer({("g", "c"): there})))) == {("g", "c"): there}


@pytest.mark.parametrize("shares", [(1.0, 0.0, 0.0), (0.5, 0.3, 0.2), (0.0, 0.0, 1.0)])
async def test_three_servers_decide_as_one_does(shares: tuple[float, float, float]) -> None:
    """On the same reports, wherever the load streams are."""
    alone = await steered()
    others = Others({"b": await steered(), "c": await steered()})
    holder = await steered(others)
    for each in (alone, holder):
        await each.assignments.put(KEY, policy(100.0))
    for step in range(12):
        rps = {A: 20.0 * step, B: 60.0}
        alone.reports.rps = rps
        for server, share in zip((holder, *others.steered.values()), shares, strict=True):
            server.reports.rps = {source: value * share for source, value in rps.items()}
            server.now = alone.now + 1.0
        holder.now = alone.now
        await alone.step()
        await holder.step()
        assert holder.shares(A) == alone.shares(A) and holder.shares(B) == alone.shares(B), step
    assert alone.shares(A)["zb"] > 0  # some of the load of zone a went to zone b


async def test_a_silent_server_holds_its_sources_and_is_no_zero() -> None:
    others = Others({"b": await steered()})
    holder, at_b = await steered(others), others.steered["b"]
    await holder.assignments.put(KEY, policy(100.0))
    holder.reports.rps, at_b.reports.rps = {B: 50.0}, {A: 180.0}
    for _ in range(6):
        at_b.now = holder.now + 1.0
        await holder.step()
    before = holder.shares(A)
    assert before["zb"] > 0
    others.silent.add("b")
    for _ in range(3):
        await holder.step()
        assert holder.shares(A) == before
    assignment = holder.assignments.get(KEY).assignment
    assert assignment is not None and assignment.sources[A].standing is Standing.HELD
    others.silent.clear()
    at_b.now = holder.now + 1.0
    await holder.step()
    again = holder.assignments.get(KEY).assignment
    assert again is not None and again.sources[A].standing is not Standing.HELD


async def test_a_holder_that_has_heard_nothing_yet_of_a_server_holds_all() -> None:
    others = Others({"b": await steered()})
    others.silent.add("b")
    holder = await steered(others)
    connect(holder.plane.fleet, A)
    holder.reports.rps = {A: 180.0}
    await holder.assignments.put(KEY, policy(100.0))
    await holder.step()
    assignment = holder.assignments.get(KEY).assignment
    assert assignment is not None
    assert assignment.sources[A].standing in {Standing.HELD, Standing.PUSHED}


async def test_an_answer_of_another_release_counts_as_silence() -> None:
    class Newer(Others):
        async def ask(self, asked: Asked) -> Answers:
            answers = await super().ask(asked)
            document = next(iter(answers.received.values())).document()
            assert document is not None
            document["measured"][0]["reported"]["more"] = 1
            return Answers({"b": Answer(document)}, ())

    found = await DemandOfOthers(Newer({"b": await steered()})).ask([WANTED])
    assert not found.found and found.unheard == {"b": {}}


async def test_nobody_is_asked_where_there_is_one_server_or_nothing_to_decide() -> None:
    others = Others({"b": await steered()})
    assert not (await DemandOfOthers(others).ask([])).found and others.asked_n == 0
    assert not (await DemandOfOthers().ask([WANTED])).found


async def test_demand_is_asked_over_the_ports(site: Site, silent: str) -> None:
    """The whole way: the holder's question, the secret, the answer of the other server."""
    site["b"].reports.rps = {A: 40.0}
    asking = DemandOfOthers(site["a"].services.others)
    found = await asking.ask([WANTED])
    (measured_at_b,) = found.found[KEY]
    assert measured_at_b.reported.sources[0].rps == 40.0 and not found.unheard
    site.rows.append(Member("c", silent))
    found = await asking.ask([WANTED])
    assert found.unheard == {"c": {}}
    (measured_at_b,) = found.found[KEY]
    site.rows[1] = Member("b", silent)
    found = await asking.ask([WANTED])
    assert set(found.unheard) == {"b", "c"} and found.unheard["b"][KEY] == measured_at_b
    assert isinstance(site["a"].services.feature(ServedSteering, "steering"), ServedSteering)


def test_a_wanted_demand_is_json() -> None:
    assert json.loads(json.dumps(asdict(WANTED))) == {
        "group": GROUP,
        "cluster": "web",
        "endpoints": "web",
        "interval_s": 1.0,
    }
