"""Random swaps with clients that lose requests as Envoys do, on ADS and on streams of their own, in both variants.

A world pushes whole sites, in groups and with overlays; what is said is delayed and interleaved; streams are cut and
the server starts anew. No request may be lost on the way, nothing that was refused is sent again, and when all is quiet
every client uses what was pushed last and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.property.swap_world import CAUGHT_UP_S, COMING_BACK, FEATURES, World
from tests.support.examples import examples
from tests.support.texts import ADMIN, TARGET, Site, parse, references_of
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SECRET
from xds.protocol.dialect import Variant

NAMES = "abc"
MODES = ("inline", "r1", "r2")
# What a push may have that a client refuses.
TROUBLES = ("", "", "", "", "cluster", "leading", "assignment", "malformed", "listener", "route", "filter", "inner")
TUNNEL, INNER = "t", "inner"


@dataclass(frozen=True)
class Plan:
    """A site, in few words that shrink well.

    Cluster ``t`` leads over an internal listener where ``behind`` says so: by its own endpoints, or its assignment's.
    ``within`` is the text of that listener. If it ``stays``, it is pushed even if nothing leads over it: one that comes
    or goes with its users may lose requests (docs/protocol.md#what-is-not-promised).
    ``keys`` and ``filter`` are the contents of secrets and of a filter by
    ECDS. ``tidy``: assignments, secrets and filters that nothing names are not pushed.
    """

    r1: str = "a"
    r2: str = "a"
    inline: str = "a"
    svc: str = "r1"
    web: str = ""
    texts: tuple[str, ...] = ("@1", "@1", "@1")
    whole: str = ""
    load: str = "1"
    extra: str = ""
    trouble: str = ""
    behind: str = ""
    within: str = "to:a"
    keys: str = "1"
    filter: str = "@1"
    tidy: bool = False
    stays: bool = False

    def site(self, guarded: bool, troubled: bool) -> Site:
        """The texts.

        ``guarded``: route configurations open a path that listeners have a filter for. ``troubled``: with what is
        refused, if there is any.
        """
        routes = {"r1": " ".join(self.r1), "r2": " ".join(self.r2)}
        modes = {TARGET: self.svc, "web": self.web}
        listeners = {name: self._listener(mode, guarded) for name, mode in modes.items() if mode}
        if self._has_inner():
            modes[INNER] = self._inner()
            listeners[INNER] = f"{modes[INNER]} internal{' authz' if guarded else ''}"
        clusters = {name: self._cluster(name) for name in self._used()}
        loads = dict.fromkeys(("a", "b", "c", "d", "x", "y"), self.load)
        if TUNNEL in clusters and self.behind != "cluster":
            loads[TUNNEL] = f"in:{INNER}" if self.behind else self.load
        content: Site = {
            CLUSTER: clusters,
            ENDPOINT: loads,
            LISTENER: listeners,
            ROUTE: {
                name: f"{text} {ADMIN}" if guarded else text for name, text in routes.items() if name in modes.values()
            },
            SECRET: dict.fromkeys("su", f"@{self.keys}"),
            EXTENSION_CONFIG: {"f": f"{self.filter} authz" if guarded else self.filter},
        }
        if self.tidy:
            _tidy(content)
        if troubled:
            self._spoil(content)
        return content

    def _listener(self, mode: str, guarded: bool) -> str:
        routes = " ".join(f"to:{name}" for name in self.inline) if mode == "inline" else mode
        is_filtered = self.extra.startswith("ecds:")  # that filter is the one
        return f"{routes} {self.extra}{' authz' if guarded and not is_filtered else ''}".strip()

    def _used(self) -> Iterable[str]:
        used = set().union(
            *({"inline": self.inline, "r1": self.r1, "r2": self.r2}.get(m, "") for m in (self.svc, self.web))
        )
        used |= set(parse(self.filter).to)
        if self.stays or (TUNNEL in used and self.behind):
            used |= set(self.r2 if self._inner() == "r2" else self._inner().removeprefix("to:"))
        return sorted(used | set(self.whole) if "d" in used else used)

    def _inner(self) -> str:
        """``within``, but no way back to where it is used."""
        return "to:a" if self.within == "r2" and TUNNEL in self.r2 else self.within

    def _has_inner(self) -> bool:
        return self.stays or (TUNNEL in self._used() and bool(self.behind))

    def _cluster(self, name: str) -> str:
        if name == TUNNEL:
            return f"in:{INNER}" if self.behind == "cluster" else "@1"
        if name != "d":
            return self.texts[NAMES.index(name)]
        return f"of:{','.join(self.whole)}" if self.whole else "@1"

    def _spoil(self, content: Site) -> None:
        if self.trouble in ("cluster", "malformed"):
            content[CLUSTER]["z"] = "bad" if self.trouble == "cluster" else "malformed"
        elif self.trouble == "leading":
            content[CLUSTER]["z"] = "bad"
            content[ENDPOINT]["z"] = "1"
            for name in content[ROUTE]:
                content[ROUTE][name] += " z"
        elif self.trouble == "assignment":
            content[ENDPOINT][min(self._used())] = f"bad @{self.load}"
        elif self.trouble == "inner" and INNER in content[LISTENER]:
            content[LISTENER][INNER] += " bad"
        elif self.trouble == "listener":
            content[LISTENER]["z"] = "to:a bad"
        elif self.trouble == "route":
            for name in sorted(content[ROUTE])[:1]:
                content[ROUTE][name] += " bad"
        elif self.trouble == "filter":
            content[EXTENSION_CONFIG]["f"] = "bad"


def _tidy(content: Site) -> None:
    """Without assignments, secrets and filters that nothing names."""
    users = [(url, name, text) for url in (CLUSTER, LISTENER) for name, text in content[url].items()]
    named = {(each.type_url, each.name) for user in users for each in references_of(*user)}
    for url in (ENDPOINT, SECRET, EXTENSION_CONFIG):
        content[url] = {name: text for name, text in content[url].items() if (url, name) in named}


LED_TO = ("a", "b", "c", "ab", "bc", "ac", "d", "ad", "t", "bt")
LITTLE, LONG = "hc:2", "hc:8"  # health checks, with the seconds that the first one takes
TEXTS = ("@1", "@2", "eds:x", "eds:y", "static", LITTLE, LONG, "sds:s", "sds:u")  # of each cluster of `NAMES`
# What the other fields of a plan may be: few names, so that the same ones come and go.
CHOICES: Mapping[str, Sequence[Any]] = {
    "r1": LED_TO,
    "r2": LED_TO,
    "inline": LED_TO,
    "svc": MODES,
    "web": ("", *MODES),
    "whole": ("", "a", "b", "ab"),
    "load": "12",
    "extra": ("", "", "ecds:f", "sds:s", "sds:u", "lua"),
    "trouble": TROUBLES,
    "behind": ("", "cluster", "assignment"),
    "within": ("to:a", "to:c", "r2"),
    "keys": "12",
    "filter": ("@1", "@2", "to:a", "to:b"),
    "tidy": (False, True),
}
_text = st.sampled_from(TEXTS)
_fields: dict[str, st.SearchStrategy[Any]] = {name: st.sampled_from(each) for name, each in CHOICES.items()}
plans = st.builds(Plan, texts=st.tuples(_text, _text, _text), stays=st.just(True), **_fields)


@dataclass(frozen=True)
class Push:
    """``told``: the streams know of it at once."""

    plan: Plan
    told: bool = True
    group: str = "default"

    def __call__(self, world: World) -> None:
        world.push(self.plan.site, self.told, self.group)


@dataclass(frozen=True)
class Go:
    """Requests arrive, responses are read, streams are told, one after the other, in this order."""

    choices: tuple[int, ...]

    def __call__(self, world: World) -> None:
        for choice in self.choices:
            world.move(choice)


@dataclass(frozen=True)
class Wait:
    """Time passes: little, while all is on its way; or more, and everybody reads."""

    seconds: float

    def __call__(self, world: World) -> None:
        world.wait(self.seconds)


@dataclass(frozen=True)
class Cut:
    """All streams end, of one client or because the server does; a push or two are missed; they come back.

    ``moves``: to another server.
    """

    restart: bool = False
    missed: tuple[Plan, ...] = ()
    seconds: float = 0
    backwards: bool = False
    moves: bool = False
    client: int = 0

    def __call__(self, world: World) -> None:
        missed = [plan.site for plan in self.missed]
        world.cut(missed, self.restart, self.seconds, self.backwards, self.moves, self.client)


@dataclass(frozen=True)
class EndOne:
    """The stream of one type ends, and begins anew within a moment."""

    stream: int = 0

    def __call__(self, world: World) -> None:
        world.end_one(self.stream)


@dataclass(frozen=True)
class Drop:
    """The group of the node's own is deleted."""

    def __call__(self, world: World) -> None:
        world.drop()


@dataclass(frozen=True)
class LayOver:
    """Assignments get a suffix in the client's zone; none: they have it no more."""

    names: str = ""

    def __call__(self, world: World) -> None:
        world.lay_over(self.names)


@dataclass(frozen=True)
class Guard:
    """From the next push on, route configurations open a path that listeners have a filter for."""

    def __call__(self, world: World) -> None:
        world.guard()


@dataclass(frozen=True)
class Observe:
    """Assignments are observed."""

    names: str
    load: str = "3"

    def __call__(self, world: World) -> None:
        world.observe(dict.fromkeys(self.names, self.load))


@dataclass(frozen=True)
class Label:
    """The next pushes have this label; an empty one: each has its own."""

    text: str = ""

    def __call__(self, world: World) -> None:
        world.name(self.text)


@dataclass(frozen=True)
class Pick:
    """One client refuses a text, such as ``b=@1``; an empty one: nothing."""

    text: str = ""
    client: int = 0

    def __call__(self, world: World) -> None:
        world.pick(self.text, self.client)


@dataclass(frozen=True)
class Notice:
    """The server notices which connections are broken."""

    def __call__(self, world: World) -> None:
        world.notice()


Action = Callable[[World], None]
GROUPS = ("default", "node")
WAITS_S = (1.0, 3.0, 6.0, 16.0, 40.0, 620.0)
OVERLAID = ("", "a", "abxy")
OBSERVED = ("a", "b", "ax", "bc", "abxy")
LABELS = ("", "v1", "v2")
PICKED = ("", "b=@1", "svc=r2", "r1=b", "a=2")
OTHERS: Sequence[Action] = (Drop(), Guard(), Notice())
_pushes = st.builds(Push, plans, st.booleans(), st.sampled_from(GROUPS))
_cuts = st.builds(
    Cut,
    st.booleans(),
    st.lists(plans, max_size=2).map(tuple),
    st.sampled_from((0.0, 2.0)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1),
)
_single_ends = st.builds(EndOne, st.integers(0, 9))
_steps = st.builds(Go, st.lists(st.integers(0, 7), min_size=1, max_size=12).map(tuple))
# Each asks the world whether it has the feature.
actions: st.SearchStrategy[Action] = st.one_of(
    _pushes,
    _steps,
    st.builds(Wait, st.sampled_from(WAITS_S)),
    _cuts,
    _single_ends,
    st.builds(LayOver, st.sampled_from(OVERLAID)),
    st.builds(Observe, st.sampled_from(OBSERVED), st.sampled_from("34")),
    st.builds(Label, st.sampled_from(LABELS)),
    st.builds(Pick, st.sampled_from(PICKED), st.integers(0, 1)),
    st.sampled_from(OTHERS),
)


# Many at once find more; few are what a failure shrinks to.
HAPPENINGS = st.one_of(st.lists(actions, max_size=6), st.lists(actions, min_size=8, max_size=20))
# Streams end alone and all together, and time passes meanwhile: what one stream has shown is old by the next.
_long_waits = st.builds(Wait, st.sampled_from((1.0, 40.0, 620.0)))
_others = st.sampled_from((Guard(), Label("v1"), Notice()))
ENDS: st.SearchStrategy[list[Action]] = st.lists(
    st.one_of(_single_ends, _single_ends, _pushes, _pushes, _cuts, _long_waits, _steps, _others),
    min_size=6,
    max_size=18,
)


PLAIN = Plan()
# Dialect, whether each type has a stream of its own, features, what is pushed first, what happens, what is pushed last.
Story = tuple[Variant, bool, str, Plan, list[Action], Plan]


def promised(story: Story) -> Story:
    """The same story without what clients that come back are not promised (docs/protocol.md#what-is-not-promised).

    * They are in step when their node moves to another group, and in SotW that has no aggregate cluster: "a client that
      moved to another group and reconnects".
    """
    variant, split, features, first, happenings, last = story
    if COMING_BACK.isdisjoint(features.split()):
        return story
    kept: list[Action] = []
    for each in happenings:
        if not isinstance(each, Push) or each.group == GROUPS[0]:
            kept.append(each)
            continue
        if not any(isinstance(one, Push) and one.group == each.group for one in kept):
            kept.append(Wait(CAUGHT_UP_S))
        kept.append(replace(each, plan=replace(each.plan, whole="")) if variant is Variant.SOTW else each)
    return variant, split, features, first, kept, last


def play(variant: Variant, split: bool, features: str, first: Plan, happenings: Iterable[Action], last: Plan) -> None:
    """Let it happen. ``features`` are separated by spaces."""
    world = World(variant, split, frozenset(features.split()), first.site)
    for action in happenings:
        action(world)
        world.check()
    world.finish(last.site)


# A story takes minutes to shrink: in `make test`, where the stories are the same each time, a failure is told at once.
IS_SHORT = settings().derandomize
PHASES = (Phase.generate,) if IS_SHORT else tuple(Phase)


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)  # a failure is shrunk to its shortest form first
@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_no_swap_loses_requests(variant: Variant, split: bool) -> None:
    @examples(60, in_soak=200, suppress_health_check=list(HealthCheck), phases=PHASES)
    @given(features=st.frozensets(st.sampled_from(FEATURES)), first=plans, happenings=HAPPENINGS, last=plans)
    def run(features: frozenset[str], first: Plan, happenings: list[Action], last: Plan) -> None:
        play(*promised((variant, split, " ".join(features), first, happenings, last)))

    run()


@pytest.mark.hypothesis
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_no_stream_that_ends_loses_requests(variant: Variant) -> None:
    @examples(600, in_soak=600, suppress_health_check=list(HealthCheck))
    @given(features=st.frozensets(st.sampled_from(FEATURES)), first=plans, happenings=ENDS, last=plans)
    def run(features: frozenset[str], first: Plan, happenings: list[Action], last: Plan) -> None:
        play(*promised((variant, True, " ".join(features | {"singles", "cuts"}), first, happenings, last)))

    run()
