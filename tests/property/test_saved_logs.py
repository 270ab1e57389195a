"""The stories of random swaps that the removal log and former groups are about: each is named by its promise."""

from __future__ import annotations

import pytest

from tests.property.test_swaps import PLAIN, Cut, Drop, Go, Guard, Pick, Plan, Push, Story, Wait, play
from xds.protocol.dialect import Variant

SOTW = Variant.SOTW

STORIES: dict[str, Story] = {
    "an aggregate cluster of the new group takes no one's place before its members are warm": (
        SOTW,
        False,
        "cuts groups late",
        Plan(r1="d"),
        [
            Push(plan=Plan(tidy=True), group="node"),
            Go(choices=(1, 7)),
            Cut(missed=(Plan(r1="d", whole="ab"),), client=1),
        ],
        PLAIN,
    ),
    "a listener that warms does not open with a route that only a missed filter guards": (
        SOTW,
        False,
        "cuts",
        Plan(inline="ab", svc="inline", texts=("@1", "sds:s", "@1")),
        [Cut(missed=(PLAIN,)), Go(choices=(2, 0, 7, 7, 0)), Guard(), Cut(missed=(Plan(extra="ecds:f"),))],
        PLAIN,
    ),
    "a cluster that an unread response removed is new when it comes back": (
        SOTW,
        False,
        "",
        Plan(r1="b"),
        [
            Push(plan=Plan(r2="c", web="r2", texts=("eds:x", "@1", "eds:x")), group="node"),
            Push(plan=Plan(inline="c", svc="inline", texts=("@1", "@1", "hc:8")), group="node"),
        ],
        Plan(texts=("eds:x", "@1", "@1")),
    ),
    "what the client accepted of its former group is no suspect": (
        SOTW,
        False,
        "cuts refusals groups",
        Plan(r1="ad", whole="ab"),
        [
            Push(plan=Plan(inline="d", web="inline", whole="ab"), group="node"),
            Push(plan=Plan(trouble="malformed"), told=False, group="node"),
            Cut(client=1),
        ],
        PLAIN,
    ),
    "a client that requests an assignment of its former group requests clusters as well": (
        SOTW,
        False,
        "cuts groups",
        PLAIN,
        [
            Push(plan=Plan(texts=("hc:2", "@1", "@1")), told=False),
            Go(choices=(3,)),
            Push(plan=Plan(inline="bc", svc="inline"), told=False, group="node"),
            Cut(),
            Wait(seconds=16.0),
        ],
        PLAIN,
    ),
    "listeners of an unknown set wait while a route that they name is refused": (
        SOTW,
        False,
        "cuts refusals twins late",
        PLAIN,
        [Cut(missed=(Plan(inline="b", svc="inline", web="r2", trouble="route"),)), Wait(seconds=16.0)],
        PLAIN,
    ),
    "an assignment that was refused beside another one is sent though its cluster was removed": (
        SOTW,
        False,
        "delays picky",
        Plan(r2="ab", web="r2", texts=("static", "static", "@1")),
        [
            Pick(text="a=2"),
            Push(plan=Plan(r2="b", svc="r2", web="r1", load="2"), told=False),
            Go(choices=(5, 0, 5, 2, 5, 5)),
            Push(plan=Plan(r1="ab", texts=("@1", "static", "@1"))),
            Push(plan=Plan(r2="bc", web="r2", load="2"), group="node"),
            Push(plan=Plan(tidy=True), told=False),
        ],
        PLAIN,
    ),
    "what lingers leaves although the push has made its responses": (
        SOTW,
        False,
        "cuts refusals late",
        Plan(r1="c"),
        [
            Push(plan=PLAIN),
            Wait(seconds=6.0),
            Push(plan=Plan(trouble="cluster"), group="node"),
            Push(plan=Plan(inline="bc", svc="inline"), told=False),
            Push(plan=PLAIN),
            Cut(client=1),
            Cut(missed=(Plan(trouble="malformed"), Plan(r2="ac", web="r2", texts=("@1", "@1", "hc:8"))), client=1),
            Go(choices=(6, 7, 4)),
            Cut(client=1),
        ],
        PLAIN,
    ),
    "a route of the log waits for a cluster that the client may never have had": (
        SOTW,
        False,
        "cuts refusals",
        Plan(inline="c", svc="inline"),
        [
            Push(plan=Plan(r1="b"), told=False, group="node"),
            Push(plan=Plan(trouble="route"), told=False, group="node"),
            Wait(seconds=16.0),
            Cut(client=1),
        ],
        PLAIN,
    ),
    "content that was accepted before is not rejected by the error of an earlier response": (
        SOTW,
        False,
        "refusals groups",
        PLAIN,
        [
            Push(plan=Plan(inline="c", svc="inline", texts=("@1", "@1", "hc:8")), told=False, group="node"),
            Go(choices=(0, 4)),
            Push(plan=Plan(trouble="malformed"), told=False, group="node"),
            Drop(),
        ],
        PLAIN,
    ),
    "a listener of a refused set that was applied is not taken back to before its filter": (
        SOTW,
        False,
        "refusals",
        PLAIN,
        [
            Guard(),
            Push(plan=Plan(trouble="listener")),
            Wait(seconds=16.0),
            Push(plan=Plan(extra="ecds:f", trouble="filter"), told=False),
        ],
        PLAIN,
    ),
    "a filter that was refused for an earlier listener keeps the listener out that names it again": (
        SOTW,
        False,
        "refusals",
        Plan(extra="ecds:f"),
        [
            Push(plan=PLAIN, told=False),
            Push(plan=Plan(extra="ecds:f", trouble="filter"), group="node"),
            Wait(seconds=620.0),
        ],
        PLAIN,
    ),
    "a listener is not taken back to what a group got after its node had left": (
        SOTW,
        False,
        "cuts refusals groups delays",
        PLAIN,
        [
            Cut(client=1),
            Push(plan=Plan(extra="ecds:f", trouble="filter"), told=False, group="node"),
            Push(plan=Plan(inline="c", svc="inline")),
        ],
        PLAIN,
    ),
    "what a node refused does not come back with its former group": (
        SOTW,
        False,
        "cuts refusals groups delays late",
        PLAIN,
        [
            Cut(missed=(Plan(trouble="cluster"), PLAIN)),
            Wait(seconds=6.0),
            Push(plan=Plan(filter="to:b"), told=False, group="node"),
            Cut(missed=(Plan(inline="bc", svc="inline", trouble="leading"),)),
            Cut(missed=(PLAIN, PLAIN), client=1),
        ],
        PLAIN,
    ),
    "nor with a version between the two": (
        SOTW,
        False,
        "cuts",
        Plan(inline="ab", svc="inline", texts=("@1", "sds:s", "@1")),
        [Cut(missed=(PLAIN,)), Go(choices=(2, 0, 7, 7, 0)), Guard(), Cut(missed=(Plan(texts=("hc:2", "@1", "@1")),))],
        Plan(r1="c"),
    ),
    "while no clusters are requested, no earlier route leads to a removed cluster that was not shown": (
        SOTW,
        False,
        "cuts",
        Plan(inline="bc", svc="inline"),
        [
            Wait(40.0),
            Push(PLAIN),
            Push(Plan(r1="b", texts=("@1", "eds:x", "@1"), load="2"), told=False),
            Go((2, 3, 6, 5)),
            Cut(missed=(Plan(inline="d", web="inline", whole="b"),)),
            Push(Plan(r1="d"), told=False),
        ],
        PLAIN,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_saved_return_by_the_log_loses_no_request(name: str) -> None:
    play(*STORIES[name])
