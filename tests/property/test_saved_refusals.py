"""The stories of random swaps in which clients refuse something: each is named by its fault."""

from __future__ import annotations

import pytest

from tests.property.test_swaps import (
    PLAIN,
    Action,
    Cut,
    Drop,
    Go,
    Guard,
    Label,
    LayOver,
    Pick,
    Plan,
    Push,
    Story,
    Wait,
    play,
)
from xds.protocol.dialect import Variant

SOTW, DELTA = Variant.SOTW, Variant.DELTA

STORIES: dict[str, Story] = {
    "a suspect cluster whose earlier version never got its assignment is waited for without limit": (
        SOTW,
        True,
        "late refusals",
        Plan(
            r1="ad",
            inline="c",
            svc="inline",
            texts=("hc:2", "sds:s", "@2"),
            whole="a",
            extra="sds:s",
            keys="2",
        ),
        [
            Push(Plan(r1="c", inline="ab", web="inline", texts=("eds:x", "sds:u", "static"), extra="ecds:f", keys="2")),
            Push(
                Plan(
                    r2="bc",
                    svc="r2",
                    texts=("static", "hc:2", "eds:x"),
                    load="2",
                    trouble="malformed",
                    keys="2",
                    filter="to:a",
                )
            ),
            Wait(40.0),
        ],
        PLAIN,
    ),
    "a client that shows what a refused response removed is not taken to have it": (
        DELTA,
        False,
        "cuts refusals twins",
        PLAIN,
        [
            Push(Plan(r1="ab", texts=("eds:y", "sds:u", "eds:y"), filter="to:a", tidy=True)),
            Cut(restart=True, seconds=2.0),
            Cut(
                missed=(
                    Plan(
                        inline="ab",
                        svc="inline",
                        web="inline",
                        texts=("eds:x", "sds:s", "eds:x"),
                        extra="lua",
                        trouble="listener",
                        keys="2",
                        filter="to:a",
                    ),
                    Plan(
                        r2="c",
                        inline="ac",
                        svc="r2",
                        web="inline",
                        texts=("sds:u", "static", "hc:8"),
                        extra="lua",
                        trouble="listener",
                        keys="2",
                    ),
                ),
                seconds=2.0,
                backwards=True,
                moves=True,
            ),
            Push(
                Plan(
                    r1="ad",
                    texts=("eds:x", "eds:y", "hc:2"),
                    whole="b",
                    load="2",
                    extra="lua",
                    trouble="leading",
                    keys="2",
                    filter="to:b",
                    tidy=True,
                )
            ),
            Go((5,)),
            Push(
                Plan(
                    r2="ad",
                    svc="r2",
                    texts=("eds:x", "hc:8", "hc:8"),
                    extra="sds:u",
                    trouble="assignment",
                    keys="2",
                    filter="@2",
                    tidy=True,
                )
            ),
            Cut(client=1),
        ],
        Plan(
            r1="c",
            r2="d",
            inline="ac",
            svc="r2",
            web="r1",
            texts=("hc:2", "sds:u", "sds:u"),
            whole="a",
            load="2",
            extra="ecds:f",
            keys="2",
            filter="to:b",
        ),
    ),
    "all other suspects are tried with the first assignments after the bad one is found": (
        DELTA,
        False,
        "cuts delays refusals",
        Plan(
            r1="d",
            r2="ad",
            svc="r2",
            web="r2",
            texts=("@2", "@2", "hc:2"),
            whole="b",
            extra="ecds:f",
            keys="2",
            filter="to:b",
        ),
        [
            Push(
                Plan(
                    r1="bc",
                    inline="ac",
                    svc="inline",
                    web="r1",
                    texts=("sds:s", "@2", "sds:s"),
                    load="2",
                    extra="lua",
                    filter="to:b",
                    tidy=True,
                )
            ),
            Push(
                Plan(
                    svc="r2",
                    web="r2",
                    texts=("hc:8", "sds:u", "eds:x"),
                    trouble="assignment",
                    keys="2",
                    filter="@2",
                )
            ),
            Go((0, 4, 3, 0)),
            Cut(restart=True),
            Wait(40.0),
            Push(
                Plan(
                    r1="c", texts=("eds:y", "eds:x", "sds:u"), extra="sds:s", trouble="cluster", keys="2", filter="to:a"
                )
            ),
            Go((3, 1, 1)),
            Go((5, 2, 6, 4)),
            Cut(restart=True, seconds=2.0, backwards=True, moves=True),
            Push(
                Plan(
                    r1="bc",
                    web="r1",
                    texts=("eds:x", "hc:8", "eds:y"),
                    extra="sds:u",
                    trouble="assignment",
                    keys="2",
                    tidy=True,
                )
            ),
            Wait(16.0),
        ],
        PLAIN,
    ),
    "a late refusal of an earlier version says nothing of the newest one": (
        DELTA,
        False,
        "delays picky",
        Plan(web="r2", r2="b", texts=("@1", "static", "@1")),
        [Push(Plan(web="r2", r2="b", texts=("hc:8", "@1", "@1"))), Pick("b=@1")],
        Plan(web="r2", r2="b"),
    ),
    "a refused assignment is not sent again on the stream for the next version of its cluster": (
        SOTW,
        True,
        "refusals",
        Plan(extra="sds:s"),
        [
            Push(Plan(web="inline", texts=("hc:8", "@1", "@1"), load="2")),
            Go((5, 5, 1)),
            Push(Plan(keys="2")),
            Push(Plan(trouble="assignment")),
            Go((6, 6, 6, 2, 2)),
        ],
        PLAIN,
    ),
    "a listener that went back for a refused route stays there when the stream of the route ends": (
        SOTW,
        True,
        "cuts refusals",
        PLAIN,
        [
            Push(Plan(web="r1", trouble="listener")),
            Wait(40.0),
            Push(Plan(web="r2")),
            Cut(missed=(Plan(svc="r2", trouble="route"),)),
            Wait(620.0),
        ],
        PLAIN,
    ),
    "no listener goes back for a refused route that a label does not show, and that moved to another listener": (
        SOTW,
        False,
        "cuts refusals",
        Plan(web="r2"),
        [Guard(), Push(Plan(svc="r2", web="r1", trouble="route")), Wait(1.0), Cut(), Wait(40.0)],
        PLAIN,
    ),
    "a refused route that a listener warms for is not taken for one that the client has": (
        SOTW,
        False,
        "cuts delays refusals",
        Plan(web="r2"),
        [
            Push(Plan(web="r2", r2="b", trouble="route")),
            Wait(40.0),
            Push(Plan(svc="inline", web="r2", r2="b")),
            Wait(620.0),
            Push(Plan(web="r2", r2="b", trouble="route")),
            Go((0,) * 6),
            Cut(),
            Wait(40.0),
        ],
        PLAIN,
    ),
    "what took the place of a suspect is sent when it is pushed": (
        DELTA,
        False,
        "cuts refusals",
        Plan(inline="bc", web="inline"),
        [
            Cut(missed=(Plan(load="2", trouble="assignment"), Plan(trouble="assignment"))),
            Wait(40.0),
            Cut(missed=(Plan(load="2"),)),
        ],
        Plan(load="2", filter="to:b"),
    ),
    "a cluster that a refused response repeats is still had": (
        DELTA,
        False,
        "cuts refusals",
        PLAIN,
        [
            Cut(missed=(Plan(inline="bc", svc="inline", texts=("@1", "@1", "sds:s")),), client=1),
            Wait(40.0),
            Push(PLAIN, group="node"),
            Push(Plan(inline="c", svc="inline", texts=("@1", "@1", "sds:s")), group="node"),
            Push(Plan(trouble="malformed"), group="node"),
        ],
        PLAIN,
    ),
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
    "a refused route whose listener went is sent with the next one": (
        SOTW,
        False,
        "refusals",
        Plan(svc="r2"),
        [Push(Plan(inline="bc", svc="inline", web="r1", trouble="route"), told=False, group="node"), Wait(620.0)],
        Plan(svc="r1", web="r1"),
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
    "what was refused begins to be waited for when it is not any more": (
        SOTW,
        True,
        "refusals",
        PLAIN,
        [Push(Plan(inline="ac", web="inline", trouble="malformed")), Wait(40.0)],
        Plan(inline="c", svc="inline"),
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
    "an assignment that an overlay changed is tried again": (
        DELTA,
        True,
        "overlays refusals",
        PLAIN,
        [Push(Plan(trouble="assignment")), LayOver("a"), Go((0,)), LayOver()],
        PLAIN,
    ),
    "a version_info that two responses have accepts the older one": (
        SOTW,
        False,
        "delays refusals",
        Plan(r1="d", load="2"),
        [Push(Plan(trouble="assignment")), Go((0, 0)), Wait(6.0)],
        PLAIN,
    ),
    "a route that was rejected while a listener drained stays so when the drain has ended": (
        SOTW,
        True,
        "refusals",
        PLAIN,
        [Push(Plan(svc="inline")), Wait(6.0), Push(Plan(trouble="route")), Wait(6.0), Wait(620.0)],
        PLAIN,
    ),
    "a member stays while the aggregate cluster that has it is not replaced": (
        SOTW,
        False,
        "refusals",
        PLAIN,
        [
            Push(Plan(r2="d", svc="r2", whole="a")),
            Push(Plan(r1="d", trouble="malformed")),
            Wait(620.0),
        ],
        PLAIN,
    ),
    "what took the place of a suspect and was refused does so no more": (
        SOTW,
        False,
        "refusals picky late",
        Plan(r1="c", load="2"),
        [
            Pick("a=2"),
            Push(Plan(filter="to:b"), told=False),
            Push(Plan(inline="bc", web="inline", trouble="assignment")),
        ],
        Plan(r1="b", tidy=True),
    ),
    "a client that shows the newest set rejects nothing of it": (
        SOTW,
        False,
        "cuts refusals",
        PLAIN,
        [Push(Plan(trouble="malformed"), told=False), Push(PLAIN, told=False), Cut()],
        PLAIN,
    ),
    "a label that the client had before accepts no later set of this label": (
        SOTW,
        False,
        "cuts labels refusals",
        PLAIN,
        [
            Label("v2"),
            Cut(missed=(Plan(filter="to:b"),)),
            Wait(40.0),
            Push(Plan(r1="ab", texts=("@1", "sds:u", "@1"), trouble="leading")),
            Push(Plan(trouble="cluster")),
        ],
        Plan(r2="ac", svc="r2"),
    ),
    "an error that names what only an earlier response had is about that one": (
        SOTW,
        False,
        "groups refusals",
        Plan(r2="c", svc="r2"),
        [Push(Plan(r2="d", web="r2")), Push(Plan(trouble="leading"), group="node"), Drop()],
        Plan(inline="d", svc="inline"),
    ),
    "an assignment that is told as missing is not accepted before the answer": (
        SOTW,
        False,
        "cuts delays groups late refusals",
        Plan(extra="sds:u"),
        [
            Push(Plan(r1="ab", extra="sds:u", trouble="assignment"), told=False, group="node"),
            Go((7,)),
            Go((5, 7, 5, 5, 3)),
            Cut(),
        ],
        PLAIN,
    ),
    "a search that begins anew leaves nothing of the one before": (
        SOTW,
        False,
        "refusals restarts",
        PLAIN,
        [
            Cut(restart=True, missed=(Plan(trouble="malformed"),)),
            Push(Plan(trouble="leading")),
            Push(Plan(r1="ad", trouble="malformed")),
            Cut(restart=True),
            Push(Plan(texts=("hc:2", "@1", "@1"))),
        ],
        Plan(texts=("eds:y", "@1", "@1")),
    ),
    "what was refused is forgotten once it is no part of what the client is to have": (
        DELTA,
        False,
        "refusals",
        Plan(texts=("static", "sds:u", "@1"), filter="to:b"),
        [
            Push(Plan(r1="bc", texts=("@1", "hc:8", "@1"))),
            Push(Plan(texts=("@2", "static", "@1"), trouble="cluster")),
        ],
        Plan(r2="bc", web="r2", texts=("static", "hc:2", "@1")),
    ),
}

# As above, without the variant: each happened in both.
IN_BOTH_VARIANTS: dict[str, tuple[bool, str, Plan, list[Action], Plan]] = {
    "the repair of a route that is in use waits for the filter of its listener": (
        False,
        "refusals",
        Plan(svc="r1"),
        [
            Push(Plan(svc="r1", web="inline", trouble="route")),
            Go((0,)),
            Push(Plan(svc="r1")),
            Guard(),
            Push(Plan(svc="r1")),
        ],
        Plan(svc="r1"),
    ),
    "the repair of a route that was never accepted waits for the filters of its listener": (
        False,
        "refusals",
        Plan(inline="c", svc="inline"),
        [
            Push(Plan(r2="c", svc="r2", trouble="route")),
            Guard(),
            Push(Plan(r2="ad", svc="r2", extra="ecds:f")),
        ],
        PLAIN,
    ),
    "a cluster whose assignment was rejected is cold when it is pushed again with another assignment": (
        False,
        "refusals",
        Plan(tidy=True),
        [
            Push(Plan(r1="b", load="2", trouble="assignment", tidy=True)),
            Wait(1.0),
            Push(Plan(tidy=True)),
            Wait(1.0),
            Push(Plan(r1="b", trouble="assignment", tidy=True)),
        ],
        Plan(tidy=True),
    ),
    "an internal listener that was removed while another is refused is new when it is pushed again": (
        False,
        "refusals",
        Plan(inline="t", svc="inline", behind="assignment"),
        [
            Push(PLAIN),
            Wait(1.0),
            Push(Plan(trouble="listener")),
            Wait(620.0),
            Push(Plan(r2="t", web="r2", trouble="inner", behind="assignment")),
        ],
        PLAIN,
    ),
    "a listener whose released version names nothing rejected stays in it": (
        False,
        "refusals",
        Plan(web="r1"),
        [
            Push(Plan(svc="inline", web="r2", trouble="route")),
            Wait(40.0),
            Push(Plan(extra="ecds:f")),
            Push(Plan(svc="r2", trouble="route"), told=False),
        ],
        PLAIN,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_saved_refusal_loses_no_request(name: str) -> None:
    play(*STORIES[name])


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
@pytest.mark.parametrize("name", IN_BOTH_VARIANTS)
def test_a_saved_refusal_loses_no_request_in_both_variants(name: str, variant: Variant) -> None:
    play(variant, *IN_BOTH_VARIANTS[name])
