"""Stories of random swaps that lost a request once, in their shortest form: each is named by its fault."""

from __future__ import annotations

import pytest

from tests.property.swap_world import World
from tests.property.test_swaps import Action, Cut, Drop, Go, Guard, LayOver, Plan, Push, Wait
from xds.protocol.dialect import Variant

SOTW, DELTA = Variant.SOTW, Variant.DELTA
PLAIN = Plan()

Story = tuple[Variant, bool, str, Plan, list[Action], Plan]  # dialect, split, features, first, happenings, last
STORIES: dict[str, Story] = {
    "what was unsubscribed from is no suspect": (
        DELTA,
        False,
        "refusals",
        PLAIN,
        [Push(Plan(inline="ac", web="inline", load="2")), Push(Plan(load="2", trouble="assignment"))],
        Plan(load="2"),
    ),
    "nor is any of a response, once all of it was unsubscribed from": (
        DELTA,
        False,
        "refusals",
        Plan(load="2"),
        [Push(Plan(texts=("eds:y", "@1", "@1"))), Push(Plan(texts=("eds:x", "@1", "@1"), trouble="assignment"))],
        PLAIN,
    ),
    "the newest version_info beside an error is an ACK": (
        SOTW,
        False,
        "refusals",
        PLAIN,
        [Push(Plan(texts=("hc:8", "@1", "@1"))), Push(Plan(trouble="malformed"))],
        PLAIN,
    ),
    "a cluster that warms gets the last accepted assignment": (
        SOTW,
        False,
        "refusals",
        PLAIN,
        [Push(Plan(texts=("hc:8", "@1", "@1"))), Push(Plan(trouble="assignment"))],
        PLAIN,
    ),
    "what is left of a refused response is refused": (
        SOTW,
        False,
        "refusals",
        PLAIN,
        [
            Push(Plan(texts=("eds:y", "@1", "@1"), trouble="malformed")),
            Push(Plan(r2="b", svc="r2", web="r1", trouble="malformed")),
        ],
        PLAIN,
    ),
    "a route waits for its listener while another listener is held": (
        DELTA,
        True,
        "",
        Plan(r2="c", svc="r2"),
        [Guard(), Push(Plan(r2="c", svc="r2", web="inline", extra="sds:s"))],
        PLAIN,
    ),
    "a route that a warming listener used waits for it": (
        SOTW,
        True,
        "",
        Plan(r2="bc", svc="r2"),
        [Push(Plan(r1="bc")), Guard(), Push(Plan(web="r2"))],
        PLAIN,
    ),
    "the assignment of the version that a client has counts": (
        DELTA,
        False,
        "refusals",
        Plan(inline="ad", web="inline", whole="ab"),
        [Push(Plan(r2="bc", web="r2")), Push(Plan(r1="bc", texts=("@1", "@1", "eds:x"), trouble="assignment"))],
        PLAIN,
    ),
    "a cluster that came back amid a transition is cold": (
        DELTA,
        True,
        "refusals",
        Plan(r2="c", web="r2"),
        [Push(Plan(trouble="malformed")), Wait(620.0), Push(Plan(inline="ac", web="inline"))],
        PLAIN,
    ),
    "another stream is not sent the refused assignment": (
        SOTW,
        True,
        "refusals",
        PLAIN,
        [Push(Plan(texts=("hc:2", "@1", "@1"), trouble="assignment")), Go((1,))],
        PLAIN,
    ),
    "a health check is timed for each version": (
        DELTA,
        True,
        "",
        Plan(inline="c", svc="inline"),
        [Push(Plan(texts=("hc:2", "@1", "@1")))],
        Plan(texts=("hc:8", "@1", "@1")),
    ),
    "what was ACKed on a stream of its own need not have been warm": (
        SOTW,
        True,
        "cuts",
        PLAIN,
        [Push(Plan(inline="bc", web="inline")), Go((0,)), Cut(backwards=True)],
        PLAIN,
    ),
    "a mixed set is known by its hash after a restart": (
        SOTW,
        False,
        "restarts",
        Plan(texts=("sds:s", "@1", "@1")),
        [Cut(True, (Plan(inline="ac", web="inline"),)), Push(Plan(r1="b")), Go((0, 0, 0, 0, 0, 0)), Cut(True)],
        PLAIN,
    ),
    "a listener that is held as it is has its routes": (
        SOTW,
        False,
        "refusals",
        Plan(inline="ab", svc="r2", web="inline"),
        [
            Push(Plan(r2="b", svc="r2")),
            Push(PLAIN),
            Push(Plan(svc="r2", extra="lua", trouble="malformed")),
            Wait(620.0),
        ],
        PLAIN,
    ),
    "a cluster is proved in all versions that may be in use": (
        SOTW,
        False,
        "refusals",
        PLAIN,
        [
            Push(Plan(trouble="cluster")),
            Wait(40.0),
            Push(Plan(r2="d", svc="r2", texts=("@1", "hc:2", "@1"), whole="b")),
            Push(Plan(r1="ab", trouble="malformed")),
        ],
        PLAIN,
    ),
    "refusals are remembered of what is held": (
        SOTW,
        False,
        "cuts refusals",
        PLAIN,
        [Push(Plan(trouble="listener")), Go((0,)), Cut()],
        PLAIN,
    ),
    "suspects are remembered": (
        SOTW,
        False,
        "cuts refusals",
        PLAIN,
        [Push(Plan(inline="ad", svc="inline", trouble="malformed")), Wait(1.0), Cut()],
        PLAIN,
    ),
    "what was pushed while a client came back is not what it has": (
        SOTW,
        False,
        "cuts delays refusals",
        PLAIN,
        [Cut(False, (Plan(trouble="leading"),)), Go((0,)), Push(PLAIN)],
        PLAIN,
    ),
    "an assignment that a client asks for is answered from the revision it holds": (
        SOTW,
        True,
        "cuts delays",
        PLAIN,
        [Push(Plan(texts=("eds:x", "@1", "@1"))), Go((0,)), Cut(), Push(Plan(inline="b", svc="inline"))],
        PLAIN,
    ),
    "the same, where its streams come back in another order": (
        SOTW,
        True,
        "cuts",
        PLAIN,
        [
            Push(Plan(texts=("eds:y", "@1", "@1"))),
            Go((0,)),
            Cut(False, (Plan(r2="bc", svc="r2"),), 0.0, True),
        ],
        PLAIN,
    ),
    "streams that end one by one prove nothing": (
        SOTW,
        True,
        "cuts",
        Plan(r1="b", r2="b", svc="r2", web="r1"),
        [Push(PLAIN), Cut()],
        PLAIN,
    ),
    "the members of an aggregate stay as long as it does": (
        DELTA,
        False,
        "refusals",
        Plan(r1="c"),
        [
            Push(Plan(r2="d", web="r2", whole="b", load="2")),
            Push(Plan(inline="ad", svc="inline", whole="a", trouble="malformed")),
        ],
        PLAIN,
    ),
    "a label that streams of one type do not share says nothing": (
        SOTW,
        True,
        "cuts twins",
        Plan(web="r2"),
        [Push(Plan(extra="ecds:f")), Cut(False, (Plan(r2="d", web="r2"),))],
        PLAIN,
    ),
    "what was proved one by one serves on while it changes": (
        DELTA,
        False,
        "",
        PLAIN,
        [
            Push(Plan(r1="ac", texts=("hc:8", "@1", "@1"))),
            Wait(6.0),
            Push(Plan(inline="ac", svc="inline", texts=("@1", "@1", "hc:8"))),
        ],
        PLAIN,
    ),
    "an assignment is sent again to a client that may wait for it": (
        DELTA,
        False,
        "restarts",
        Plan(inline="ab", svc="inline", texts=("eds:y", "@1", "@1")),
        [Push(Plan(inline="ab", web="inline", texts=("@1", "eds:y", "@1"))), Go((0,)), Cut(True)],
        PLAIN,
    ),
    "what was refused begins to be waited for when it is not any more": (
        SOTW,
        True,
        "refusals",
        PLAIN,
        [Push(Plan(inline="ac", web="inline", trouble="malformed")), Wait(40.0)],
        Plan(inline="c", svc="inline"),
    ),
    "what was taken of a refused response is known by the label before": (
        SOTW,
        True,
        "cuts refusals",
        PLAIN,
        [Cut(False, (Plan(inline="ab", svc="inline", trouble="cluster"),)), Wait(16.0), Push(PLAIN), Cut()],
        PLAIN,
    ),
    "a cluster of a former group gets its assignment": (
        DELTA,
        True,
        "groups",
        Plan(r2="bc", svc="r2"),
        [Push(Plan(r2="bc", web="r2", texts=("@1", "sds:s", "eds:y")), group="node"), Drop(), Go((0, 2, 7, 6))],
        PLAIN,
    ),
    "of what was unsubscribed from some may have been refused": (
        DELTA,
        False,
        "overlays refusals",
        Plan(inline="d", svc="inline", whole="b"),
        [
            LayOver("abxy"),
            Go((0,)),
            Push(Plan(r1="d", texts=("@1", "eds:x", "@1"), whole="b", trouble="assignment")),
            LayOver("a"),
        ],
        Plan(inline="b", web="inline", texts=("@1", "eds:x", "@1")),
    ),
    "a memory of something else is another proxy's": (
        SOTW,
        False,
        "cuts delays restarts twins",
        PLAIN,
        [
            Push(Plan(r1="b")),
            Push(Plan(inline="d", web="inline")),
            Go((4, 7)),
            Cut(True, (), 2.0, True),
            Cut(False, (), 2.0, True),
        ],
        PLAIN,
    ),
    "the old aggregate needs its members until the next is warm": (
        DELTA,
        False,
        "",
        PLAIN,
        [Push(Plan(r1="d", whole="b")), Push(PLAIN), Push(Plan(inline="d", svc="inline"))],
        PLAIN,
    ),
    "what lingered once and came back is in use": (
        DELTA,
        False,
        "cuts",
        Plan(r1="ac"),
        [
            Push(PLAIN),
            Go((0,)),
            Cut(False, (Plan(inline="bc", web="inline"),)),
            Wait(3.0),
            Cut(True, (PLAIN,), 2.0, True),
        ],
        PLAIN,
    ),
    "what a client that is back asks for comes with its listener": (
        DELTA,
        False,
        "restarts",
        Plan(svc="inline"),
        [Cut(True, (PLAIN,)), Guard(), Push(PLAIN)],
        PLAIN,
    ),
    "what was accepted is not sent again and again beside suspects": (
        DELTA,
        True,
        "cuts delays refusals restarts twins",
        Plan(inline="c", svc="inline", web="r1", texts=("@1", "sds:s", "hc:8"), extra="lua", trouble="malformed"),
        [
            Push(Plan("bc", "ad", "c", "r2", "r1", ("eds:x", "@2", "sds:s"), "ab", "1", "ecds:f", "malformed")),
            Push(Plan("ac", "d", "b", "r2", "r2", ("static", "hc:2", "@1"), "", "1", "sds:s"), told=False),
            Push(Plan("bc", "ad", "c", "r2", "r1", ("eds:x", "@2", "sds:s"), "ab", "1", "ecds:f", "malformed")),
            Wait(620.0),
            Push(Plan("ad", "ac", "bc", "r2", "", ("hc:8", "sds:s", "hc:8"), "ab", "2", "sds:s"), told=False),
            Go((0,)),
        ],
        Plan("a", "c", "b", "inline", "r2", ("eds:x", "@1", "@1"), "", "1", "lua", "listener"),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_saved_swap_loses_no_request(name: str) -> None:
    variant, split, features, first, happenings, last = STORIES[name]
    world = World(variant, split, frozenset(features.split()), first.site)
    for action in happenings:
        action(world)
        world.check()
    world.finish(last.site)
