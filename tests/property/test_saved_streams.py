"""The stories of streams that end alone, of servers between which clients move, and of pushes with nothing unused."""

from __future__ import annotations

import pytest

from tests.property.test_swaps import PLAIN, Cut, EndOne, Go, Guard, Label, Plan, Push, Story, Wait, play
from xds.protocol.dialect import Variant

SOTW, DELTA = Variant.SOTW, Variant.DELTA

STORIES: dict[str, Story] = {
    "what a stream refused that ended alone is not sent on the next one": (
        SOTW,
        True,
        "refusals singles",
        PLAIN,
        [Push(Plan(trouble="cluster")), Wait(1.0), EndOne(0), Wait(3.0)],
        PLAIN,
    ),
    "the same in Delta": (
        DELTA,
        True,
        "refusals singles",
        PLAIN,
        [Push(Plan(trouble="cluster")), Wait(1.0), EndOne(0), Wait(3.0)],
        PLAIN,
    ),
    "a name that a push dropped is answered, though what a client shows fits that push": (
        DELTA,
        False,
        "replicas",
        PLAIN,
        [Push(Plan(texts=("eds:y", "@1", "@1"))), Go((0,)), Cut(missed=(Plan(tidy=True),), moves=True)],
        PLAIN,
    ),
    "the same after a restart": (
        DELTA,
        False,
        "restarts",
        PLAIN,
        [Push(Plan(texts=("eds:y", "@1", "@1"))), Go((0,)), Cut(True, (Plan(tidy=True),))],
        PLAIN,
    ),
    "the same on the same server": (
        DELTA,
        False,
        "cuts",
        PLAIN,
        [Push(Plan(texts=("eds:y", "@1", "@1"))), Go((0,)), Cut(missed=(Plan(tidy=True),))],
        PLAIN,
    ),
    "what a listener leads to that is pushed again and refused lingers on": (
        SOTW,
        True,
        "refusals",
        Plan(r2="c", svc="r2"),
        [
            Push(Plan(inline="t", svc="inline", behind="assignment", within="to:c")),
            Push(PLAIN),
            Wait(40.0),
            Push(Plan(inline="t", web="inline", trouble="inner", behind="cluster")),
        ],
        PLAIN,
    ),
    "an internal listener and the others of its tree do not wait for each other over a filter": (
        SOTW,
        True,
        "",
        Plan(r2="t", svc="r2", extra="ecds:f", filter="to:b"),
        [],
        Plan(r1="t", extra="ecds:f", behind="assignment", within="r2"),
    ),
    "routes of a listener's earlier version wait while it warms after a restart": (
        SOTW,
        True,
        "restarts",
        PLAIN,
        [Push(Plan(svc="r2")), Go((0,)), Guard(), Cut(True, (PLAIN,))],
        PLAIN,
    ),
    "routes of a listener's earlier version wait in Delta, too": (
        DELTA,
        True,
        "restarts",
        PLAIN,
        [Push(Plan(svc="r2")), Go((0,)), Guard(), Cut(True, (PLAIN,))],
        PLAIN,
    ),
    "routes of a listener's earlier version wait after a cut, too": (
        SOTW,
        True,
        "cuts delays",
        PLAIN,
        [Push(Plan(svc="r2")), Go((0,)), Guard(), Cut(missed=(PLAIN,))],
        PLAIN,
    ),
    "routes of a listener's earlier version wait though another listener names them": (
        DELTA,
        True,
        "restarts",
        Plan(web="r1"),
        [Push(Plan(svc="r2", web="r1")), Go((0,)), Guard(), Cut(True, (Plan(svc="r2", web="r1"),))],
        PLAIN,
    ),
    "routes of a listener's earlier version wait while it warms for a secret": (
        SOTW,
        True,
        "restarts",
        PLAIN,
        [Push(Plan(svc="inline", extra="sds:s")), Go((0,)), Guard(), Cut(True, (PLAIN,))],
        PLAIN,
    ),
    "a route for a name that is new again leads to clusters that the client has, while their stream is away": (
        SOTW,
        True,
        "singles",
        Plan(r2="b", svc="r2"),
        [EndOne(0), Push(PLAIN), Wait(620.0), Push(Plan(svc="r2")), EndOne(0), Wait(1.0)],
        PLAIN,
    ),
    "the same of routes in Delta": (
        DELTA,
        True,
        "singles",
        Plan(r2="b", svc="r2"),
        [EndOne(0), Push(PLAIN), Wait(620.0), Push(Plan(svc="r2")), EndOne(0), Wait(1.0)],
        PLAIN,
    ),
    "a stream that ends while a push waits for a cluster is waited for from its end on": (
        SOTW,
        True,
        "singles",
        PLAIN,
        [Push(Plan(inline="b", svc="inline", texts=("@1", "hc:8", "@1"))), Wait(1.0), EndOne(0), Wait(1.0)],
        PLAIN,
    ),
    "the same while a route is refused": (
        DELTA,
        True,
        "refusals singles",
        PLAIN,
        [Push(Plan(trouble="route", tidy=True)), Wait(1.0), EndOne(0), Push(Plan(trouble="leading")), Wait(1.0)],
        PLAIN,
    ),
    "what was taken of a refused set is known by the label of the stream that ended": (
        SOTW,
        True,
        "refusals singles",
        PLAIN,
        [Push(Plan(inline="t", web="inline", trouble="cluster")), Wait(1.0), EndOne(0), Push(PLAIN)],
        PLAIN,
    ),
    "what lingers stays with a stream that ended alone, whatever other pushes have its label": (
        SOTW,
        True,
        "cuts labels singles",
        PLAIN,
        [
            Label("v1"),
            Push(Plan(extra="sds:u")),
            Cut(False, (Plan(inline="t", svc="inline", behind="cluster"),)),
            Wait(1.0),
            Push(PLAIN),
            EndOne(1),
        ],
        PLAIN,
    ),
    "a route that a stream shows of before a push leads to a cluster that the push removes": (
        SOTW,
        True,
        "singles",
        PLAIN,
        [EndOne(3), Push(Plan(r1="b")), Wait(40.0)],
        PLAIN,
    ),
    "the same route in Delta": (
        DELTA,
        True,
        "singles",
        PLAIN,
        [EndOne(3), Push(Plan(r1="b")), Wait(40.0)],
        PLAIN,
    ),
    "a stream for one route says nothing of another": (
        SOTW,
        True,
        "cuts",
        Plan(r2="bc", web="r2"),
        [Cut(missed=(Plan(r1="d", r2="bc", svc="r2", web="r1"),)), Cut()],
        PLAIN,
    ),
    "each stream of a type has a label of its own": (
        SOTW,
        True,
        "cuts",
        Plan(svc="r2", web="r1"),
        [Cut(missed=(Plan(r2="ad", svc="r2"),)), Wait(1.0), Cut()],
        Plan(r1="t", behind="cluster", within="r2"),
    ),
    "a label of one stream says nothing of what another proxy of the node id has under it on another stream": (
        SOTW,
        True,
        "cuts twins",
        Plan(svc="r2"),
        [Cut(missed=(PLAIN,)), Cut(seconds=2.0), Cut(missed=(Plan(r1="bc"),), backwards=True, client=1)],
        PLAIN,
    ),
    "a cluster that another server removed meanwhile is cold, though streams come back before that for clusters": (
        SOTW,
        True,
        "replicas",
        Plan(filter="to:b"),
        [Cut(missed=(PLAIN,), moves=True), Wait(620.0), Cut(backwards=True, moves=True)],
        Plan(r2="b", svc="r2", texts=("@1", "hc:8", "@1")),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_saved_stream_loses_no_request(name: str) -> None:
    play(*STORIES[name])
