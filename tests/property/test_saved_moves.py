"""The stories of random swaps in which clients change groups or come back in another: each is named by its fault."""

from __future__ import annotations

import pytest

from tests.property.test_swaps import PLAIN, Cut, Go, LayOver, Plan, Push, Story, Wait, play
from xds.protocol.dialect import Variant

SOTW, DELTA = Variant.SOTW, Variant.DELTA

STORIES: dict[str, Story] = {
    "what a group had before a restart may be what its clients have, if it was its only push as well": (
        SOTW,
        False,
        "delays groups refusals restarts",
        PLAIN,
        [
            Push(Plan(r1="bc", extra="lua"), group="node"),
            Cut(True),
            Push(
                Plan(inline="ad", svc="inline", texts=("@1", "static", "@1"), whole="b", trouble="malformed"),
                group="node",
            ),
        ],
        PLAIN,
    ),
    "a node that moves has the latest push that any of its connections had": (
        SOTW,
        False,
        "cuts groups half-open twins",
        Plan(r1="b"),
        [Cut(missed=(Plan(web="inline"),)), Cut(client=1), Push(Plan(r1="c"), group="node"), Cut()],
        PLAIN,
    ),
    "what lingers does so as it was accepted": (
        SOTW,
        True,
        "cuts groups refusals twins",
        PLAIN,
        [
            Cut(False, (Plan(texts=("eds:x", "@1", "@1"), trouble="malformed"),)),
            Wait(3.0),
            Push(Plan(r1="b"), group="node"),
        ],
        PLAIN,
    ),
    "a label proves no part of a set that was refused": (
        SOTW,
        False,
        "cuts groups refusals",
        Plan(r2="b", svc="r2"),
        [
            Push(PLAIN),
            Push(Plan(trouble="assignment"), group="node"),
            Cut(False, (PLAIN, PLAIN)),
            Cut(False, (PLAIN, PLAIN)),
            Cut(False, (PLAIN, PLAIN)),
        ],
        PLAIN,
    ),
    "a label does not prove that a returning client has what it rejects now": (
        SOTW,
        False,
        "cuts delays groups overlays refusals restarts twins",
        Plan(inline="a", svc="inline"),
        [
            Push(Plan(inline="bc", svc="inline", trouble="assignment"), told=False),
            Go((0, 0, 0, 2, 3)),
            Cut(),
            LayOver(""),
            Go((0,)),
            Push(Plan(inline="a", svc="inline"), told=False),
            LayOver("a"),
            Cut(
                False,
                (
                    Plan(inline="a", svc="inline"),
                    Plan(inline="bc", svc="inline", texts=("@1", "eds:x", "eds:y"), trouble="assignment"),
                ),
            ),
        ],
        Plan(inline="a", svc="inline"),
    ),
    "a label of its own group says what a moved client has of it": (
        SOTW,
        False,
        "cuts delays groups",
        PLAIN,
        [
            Push(Plan(r2="t", svc="r2", behind="assignment", within="to:c"), group="node"),
            Push(Plan(r1="t"), group="node"),
            Wait(16.0),
            Cut(),
            Push(PLAIN, group="node"),
        ],
        PLAIN,
    ),
    "a cluster of a former group lingers in the version that was warm there at last": (
        SOTW,
        True,
        "cuts groups refusals",
        Plan(r1="c", texts=("@1", "@1", "eds:y")),
        [
            Push(Plan(inline="c", svc="inline", trouble="leading")),
            Wait(620.0),
            Push(PLAIN, group="node"),
            Cut(),
        ],
        PLAIN,
    ),
    "it lingers so after a move while a push was under way": (
        SOTW,
        True,
        "cuts groups refusals",
        Plan(r1="c", texts=("@1", "@1", "eds:y")),
        [
            Push(Plan(inline="c", svc="inline", trouble="leading"), group="node"),
            Wait(620.0),
            Push(PLAIN, group="node"),
            Cut(),
        ],
        PLAIN,
    ),
    "an internal listener lingers for a moved client that has not asked for the assignment over it again": (
        SOTW,
        True,
        "cuts delays groups",
        Plan(inline="t", web="inline", behind="assignment"),
        [Cut(), Go((6,)), Push(PLAIN, group="node")],
        PLAIN,
    ),
    "a cluster that needs no assignment lingers as the client has it": (
        SOTW,
        True,
        "cuts delays groups refusals",
        Plan(r1="c"),
        [
            Cut(missed=(Plan(inline="c", svc="inline", texts=("@1", "@1", "static"), trouble="leading"),)),
            Wait(3.0),
            Cut(),
            Push(Plan(tidy=True), group="node"),
        ],
        PLAIN,
    ),
    "what a former group pushed after the move, the client never had": (
        SOTW,
        False,
        "cuts groups",
        Plan(inline="c", svc="inline"),
        [
            Push(Plan(r1="ad", texts=("@1", "hc:2", "@1"), whole="b", tidy=True), told=False, group="node"),
            Cut(missed=(Plan(r1="d"), PLAIN), client=1),
            Wait(620.0),
        ],
        PLAIN,
    ),
    "an aggregate cluster that the new group has is not the former group's": (
        SOTW,
        False,
        "cuts groups",
        Plan(r1="ac"),
        [
            Cut(missed=(Plan(inline="ad", web="inline"),)),
            Push(Plan(r2="ad", svc="r2", whole="a", tidy=True), told=False, group="node"),
            Cut(),
        ],
        Plan(tidy=True),
    ),
    "what the former group serves still may take the place of a refused cluster": (
        SOTW,
        False,
        "cuts groups refusals",
        PLAIN,
        [
            Cut(missed=(Plan(r2="ab", web="r2"),)),
            Wait(40.0),
            Push(Plan(r2="b", web="r2", texts=("@1", "sds:s", "@1"), trouble="malformed"), group="node"),
            Cut(),
            Push(PLAIN, told=False, group="node"),
        ],
        PLAIN,
    ),
    "a listener of a moved client goes back to a version that names nothing refused": (
        SOTW,
        False,
        "cuts groups refusals",
        PLAIN,
        [Push(Plan(extra="ecds:f", trouble="filter"), told=False, group="node"), Cut(), Wait(620.0)],
        PLAIN,
    ),
    "a cluster of a former group stays in its version when the new group pushed one without an assignment": (
        SOTW,
        False,
        "cuts groups late",
        Plan(inline="d", web="inline", whole="ab", stays=True),
        [
            Push(Plan(tidy=True, stays=True), group="node"),
            Push(Plan(r2="d", within="r2", stays=True), group="node"),
            Push(Plan(texts=("static", "@1", "@1"), tidy=True, stays=True), told=False, group="node"),
            Cut(),
            Wait(16.0),
        ],
        Plan(stays=True),
    ),
    "a cluster of a former group stays in its version though the new one pushed and removed it without assignment": (
        SOTW,
        True,
        "cuts groups late",
        Plan(inline="ac", web="inline", texts=("@1", "@1", "eds:x")),
        [
            Cut(missed=(PLAIN,)),
            Wait(40.0),
            Push(Plan(r2="bc", web="r2", texts=("@1", "@1", "eds:y")), group="node"),
            Push(PLAIN, group="node"),
            Cut(),
        ],
        PLAIN,
    ),
    "a client that missed the last push of its former group has the version before": (
        SOTW,
        False,
        "delays groups restarts",
        Plan(inline="ab", svc="inline"),
        [
            Push(Plan(r2="ad", web="r2", tidy=True), told=False, group="node"),
            Push(Plan(r2="b", web="r2", texts=("@1", "eds:x", "@1"))),
            Cut(restart=True),
            Wait(620.0),
        ],
        PLAIN,
    ),
    "a client that shows the set of its former group has its version of an aggregate cluster": (
        SOTW,
        False,
        "delays groups restarts",
        Plan(inline="ad", svc="inline"),
        [Cut(restart=True), Push(Plan(r1="ad", whole="b"), told=False, group="node")],
        PLAIN,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_saved_move_loses_no_request(name: str) -> None:
    play(*STORIES[name])
