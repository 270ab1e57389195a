"""Stories of random swaps that lost a request once, in their shortest form: each is named by its fault."""

from __future__ import annotations

import pytest

from tests.property.test_swaps import PLAIN, Action, Cut, Drop, Go, Guard, LayOver, Plan, Push, Story, Wait, play
from xds.protocol.dialect import Variant

SOTW, DELTA = Variant.SOTW, Variant.DELTA

STORIES: dict[str, Story] = {
    "the assignment of a cluster that was about to warm stays for a client that comes back": (
        DELTA,
        False,
        "cuts",
        Plan(r2="t", web="r2", behind="cluster"),
        [Cut(missed=(Plan(r2="t", web="r2"),)), Go((0,)), Cut(missed=(PLAIN,))],
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
    "a cluster of a former group gets its assignment": (
        DELTA,
        True,
        "groups",
        Plan(r2="bc", svc="r2"),
        [Push(Plan(r2="bc", web="r2", texts=("@1", "sds:s", "eds:y")), group="node"), Drop(), Go((0, 2, 7, 6))],
        PLAIN,
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
    "a client that warms gets routes to the clusters whose assignments it asks for": (
        SOTW,
        False,
        "cuts restarts",
        PLAIN,
        [
            Cut(False, (Plan(svc="inline"),)),
            Wait(620.0),
            Cut(False, (Plan(r2="b", svc="r2"),)),
            Push(Plan(svc="r2", texts=("eds:y", "@1", "@1"))),
            Go((0, 0, 0, 0, 0, 0)),
            Cut(True),
        ],
        PLAIN,
    ),
    "the same, where it tells versions": (
        DELTA,
        False,
        "cuts restarts",
        PLAIN,
        [
            Cut(False, (Plan(r2="c", svc="r2"),)),
            Push(Plan(inline="b", svc="r2", web="inline")),
            Go((0, 0, 0, 0, 0)),
            Cut(True),
        ],
        PLAIN,
    ),
    "the first stream for an assignment comes after the ACK": (
        DELTA,
        True,
        "delays",
        Plan(r1="b", texts=("@1", "static", "@1")),
        [Push(PLAIN), Wait(3.0)],
        PLAIN,
    ),
    "what a former group was about to change is not given any more": (
        SOTW,
        True,
        "cuts delays groups twins",
        Plan(inline="c", web="inline"),
        [
            Push(Plan(texts=("@2", "@1", "@1"))),
            Cut(False, (Plan(inline="c", svc="inline", texts=("@1", "@1", "eds:y")),)),
            LayOver(),
            Push(PLAIN, group="node"),
        ],
        PLAIN,
    ),
    "who comes back with one stream is about to ask for its clusters": (
        SOTW,
        True,
        "cuts delays",
        PLAIN,
        [Cut(), Go((1,)), Push(Plan(inline="b", web="inline"))],
        PLAIN,
    ),
    "what lingers does so as it was sent": (
        SOTW,
        True,
        "groups",
        Plan(r2="c", svc="r2"),
        [Push(PLAIN), Push(Plan(r1="c", texts=("@1", "@1", "eds:y")), group="node"), Drop()],
        PLAIN,
    ),
    "an ACK may be lost with its stream": (
        SOTW,
        True,
        "cuts delays twins",
        PLAIN,
        [Push(Plan(inline="b", web="inline")), Go((0,)), Cut(), Cut(seconds=2.0)],
        PLAIN,
    ),
    "a stream that comes early waits until it is known what its client has": (
        DELTA,
        True,
        "cuts",
        Plan(inline="b", svc="inline"),
        [Push(PLAIN), Go((0, 0, 0)), Cut(False, (Plan(r1="c"),), backwards=True)],
        PLAIN,
    ),
    "listeners swap their routes before a reconnect on separate streams": (
        SOTW,
        True,
        "cuts",
        PLAIN,
        [
            Cut(False, (Plan(svc="inline"),)),
            Wait(1.0),
            Push(Plan(inline="c", web="inline", texts=("@1", "@1", "hc:2"))),
            Guard(),
        ],
        Plan(svc="r2", web="r1"),
    ),
    "a route that a listener asks for is no newer than its filters": (
        SOTW,
        False,
        "cuts delays",
        Plan(inline="b", web="inline"),
        [
            Cut(False, (Plan(r2="b", svc="r2", texts=("@1", "hc:2", "@1")),)),
            Go((0, 0, 0, 1, 1, 1)),
            Cut(),
            Guard(),
            Go((0, 0)),
            Push(Plan(svc="r2")),
        ],
        PLAIN,
    ),
    "an internal listener that was sent stays, though it was not ACKed before it was removed": (
        SOTW,
        True,
        "",
        PLAIN,
        [Push(Plan(r1="t", behind="assignment")), Go((0,)), Push(Plan(r1="t"))],
        PLAIN,
    ),
    "a route waits for the assignment that leads over no listener any more": (
        SOTW,
        True,
        "",
        Plan(r1="d"),
        [Push(Plan(r1="t", behind="assignment")), Go((0,)), Push(Plan(r1="t"))],
        PLAIN,
    ),
    "an internal listener that shares its routes with others goes before them": (
        SOTW,
        True,
        "",
        PLAIN,
        [
            Push(Plan(svc="r2")),
            Push(Plan(r2="c", inline="t", svc="inline", behind="assignment", within="r2")),
        ],
        PLAIN,
    ),
    "a cluster that a response on its way removes is not there any more": (
        SOTW,
        False,
        "cuts delays",
        PLAIN,
        [
            Cut(missed=(Plan(r1="bc", texts=("@1", "static", "static")),)),
            Go((0,)),
            Push(Plan(r1="b", texts=("@1", "hc:8", "@1"), extra="sds:s")),
            Wait(3.0),
            Cut(missed=(Plan(inline="c", web="inline"),)),
        ],
        PLAIN,
    ),
    "listeners that wait for an internal one of their tree, and one that is removed, end together": (
        SOTW,
        False,
        "",
        Plan(svc="r2", web="r2"),
        [],
        Plan(r1="t", r2="d", behind="cluster", within="r2"),
    ),
    "a returning client is answered with routes to clusters that are warm, not only ACKed": (
        SOTW,
        True,
        "cuts delays",
        Plan(svc="r2"),
        [Push(PLAIN), Go((0,)), Push(Plan(r1="b")), Cut(), Go((0, 0))],
        PLAIN,
    ),
    "the stream of an assignment that is not served any more may come first": (
        SOTW,
        True,
        "restarts",
        PLAIN,
        [Push(Plan(texts=("eds:x", "@1", "@1"))), Go((0,)), Cut(True, (Plan(r2="b", svc="r2"),), backwards=True)],
        PLAIN,
    ),
    "a listener that a client shows may still warm, and routes wait for its next version": (
        SOTW,
        True,
        "cuts",
        Plan(inline="b", svc="inline"),
        [
            Push(Plan(svc="inline", web="r1")),
            Go((0,) * 4),
            Cut(missed=(Plan(web="r1", extra="ecds:f"),)),
            Guard(),
            Go((2,)),
            Cut(missed=(Plan(r1="b", web="r1", extra="ecds:f"),)),
        ],
        PLAIN,
    ),
}

# As above, without the variant, and without whether each type has a stream of its own: each happened with and without.
ANYWHERE: dict[str, tuple[str, Plan, list[Action], Plan]] = {
    "a cluster is cold until its assignment is there": (
        "late",
        Plan(tidy=True),
        [Push(Plan(r1="b", tidy=True)), Go((0, 1, 2))],
        Plan(tidy=True),
    ),
    "a cluster without an assignment is to lead over an internal listener, which is in the tree that waits for it": (
        "late",
        Plan(svc="inline", web="r2"),
        [Push(Plan(inline="t", svc="inline", web="inline"))],
        Plan(r2="b", inline="t", svc="inline", web="inline", behind="cluster", within="r2"),
    ),
    "a cluster comes back with a late assignment before its earlier assignment was requested": (
        "late twins",
        Plan(svc="inline", texts=("static", "@1", "@1")),
        [
            Go((0, 0, 0)),
            Wait(1.0),
            Push(Plan(svc="inline"), told=False),
            Push(Plan(r1="b"), told=False),
            Go((0,)),
            Push(Plan(svc="inline", texts=("eds:x", "@1", "@1")), told=False),
        ],
        Plan(svc="inline"),
    ),
    "a cluster in use stays as it was until the assignment of its next version is there": (
        "late",
        Plan(r1="b", tidy=True),
        [Push(Plan(r1="ab", texts=("eds:y", "@1", "@1"), tidy=True))],
        Plan(r1="a", texts=("eds:x", "@1", "@1"), tidy=True),
    ),
    "a route name that returns while an internal listener drains is sent before its new listener": (
        "",
        Plan(r1="t", r2="ad", behind="assignment", within="r2"),
        [Push(Plan(r1="b")), Wait(620.0)],
        Plan(r2="b", web="r2"),
    ),
    "the same, where the client was away": (
        "cuts",
        Plan(r1="t", r2="ad", behind="assignment", within="r2"),
        [Push(Plan(r1="b")), Wait(620.0), Cut(missed=(Plan(r2="b", web="r2"),))],
        Plan(r2="b", web="r2"),
    ),
    "a route does not overtake the filter of a listener of which an earlier version is in flight": (
        "",
        Plan(svc="inline"),
        [Push(PLAIN), Guard(), Push(PLAIN)],
        PLAIN,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_saved_swap_loses_no_request(name: str) -> None:
    play(*STORIES[name])


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
@pytest.mark.parametrize("name", ANYWHERE)
def test_a_saved_swap_loses_no_request_anywhere(name: str, variant: Variant, split: bool) -> None:
    play(variant, split, *ANYWHERE[name])
