"""A world in which pushes are rolled out carefully: its node is in the wave or not, and rollouts end in all ways."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.property.swap_watch import changes
from tests.property.swap_world import FEATURES as ALL_FEATURES
from tests.property.swap_world import Made, World, apart
from tests.support.sansio import Server
from tests.support.texts import Site, resources_of
from xds.model.resource import default_version_info
from xds.model.resource_type import ENDPOINT
from xds.protocol.dialect import Variant
from xds.snapshots.lines import GroupSplit

GROUP = "default"
FEATURES = tuple(
    each for each in ALL_FEATURES if each not in ("late", "live")
)  # late assignments are pushes of their own
Text = tuple[str, str, str]  # type URL, name, text
LOADS = "12"  # texts of assignments that may be another load


@dataclass(frozen=True)
class Rollout:
    """``base``: what is served outside of the wave; None after a roll-back.

    ``hidden``: the revisions that only waves had.
    """

    base: Site | None
    is_inside: bool
    had_head: bool
    hidden: frozenset[int]
    step: int
    since_s: float

    def split(self, server: Server) -> GroupSplit:
        """As the cache of a server knows it. The base is the present one, or what the server serves now."""
        before = server.splits.get(GROUP)
        base = before.base if before is not None and before.base is not None else server.cache.pushed(GROUP)
        return GroupSplit(
            base if self.base is not None else None,
            in_wave=lambda node: self.is_inside,
            had_head=lambda node: self.had_head,
            is_hidden=self.hidden.__contains__,
            step=self.step,
            since_s=self.since_s,
        )


class RolloutWorld(World):
    """Pushes that are no rollouts are for all at once, and end a rollout."""

    def __init__(self, variant: Variant, split: bool, features: frozenset[str], first: Made) -> None:
        self.rollout: Rollout | None = None
        self._steps = 0
        self._is_rolling = False
        self._head: Site = {}
        self._texts_of_all: set[Text] = set()
        self._texts_of_waves: set[Text] = set()
        super().__init__(variant, split, features, first)

    def roll_out(self, made: Made, inside: bool, told: bool) -> None:
        """Roll a site out, in place of the one that is rolled out now."""
        content = made(self.guarded, "refusals" in self.features)
        before = self.rollout
        base = before.base if before is not None and before.base is not None else self.pushed[GROUP]
        had_head = inside or (before is not None and before.had_head)
        hidden = before.hidden if before is not None else frozenset[int]()
        rollout = self._step(base, inside, had_head, hidden | {self._next_revision})
        self._serve_as(rollout, apart(content) if self.split else content, told)

    def widen(self) -> None:
        """The wave grows to the node."""
        rollout = self.rollout
        if rollout is not None and rollout.base is not None and not rollout.is_inside:
            self._roll(self._step(rollout.base, True, True, rollout.hidden))

    def promote(self) -> None:
        """All have it."""
        if self.rollout is not None and self.rollout.base is not None:
            self._roll(None)

    def take_back(self, told: bool) -> None:
        """All have the base again."""
        rollout = self.rollout
        if rollout is not None and rollout.base is not None:
            ended = self._step(None, rollout.is_inside, rollout.had_head, rollout.hidden)
            self._serve_as(ended, rollout.base, told)

    def refresh(self, load: str) -> None:
        """Assignments change, for all."""
        rollout = self.rollout
        if rollout is None or rollout.base is None:
            return
        base = _loaded(rollout.base, load)
        for server in self.fleet.servers:
            split = server.splits[GROUP]
            assert split.base is not None
            resources = list(resources_of(base, "api" if self.split else "ads", self.ttls))
            snapshot = server.next_snapshot(
                split.base, resources, revision=split.base.revision, types=base, label_of=default_version_info
            )
            server.note_split(replace(split, base=snapshot))
        refreshed = replace(rollout, base=base, hidden=rollout.hidden | {self._next_revision})
        self._serve_as(refreshed, _loaded(self.pushed[GROUP], load), True)

    def guard(self) -> None:
        """Nothing: a node that goes back to a base without the guard would lose the filter first."""

    def check(self) -> None:
        """A client that was in no wave never has what only waves had."""
        super().check()
        if self.rollout is None or self.rollout.had_head or "node" in self.pushed:
            return
        for client in self.clients:
            for link in client.links:
                for url, held in link.types.items():
                    pairs = (body.decode().partition("=") for body in held.resources.values())
                    texts = {(url, name, text) for name, _, text in pairs}
                    assert texts.isdisjoint(self._texts_of_waves), texts & self._texts_of_waves

    def _note_content(self) -> None:
        # What a push brings back may be tried again by a node that did not notice that it was on the other line.
        changed = changes(self._head, self.pushed[GROUP])
        self._head = self.pushed[GROUP]
        for watch in self.watches:
            watch.forgive(changed, len(self.fleet.history))
        super()._note_content()

    # -- how ----------------------------------------------------------------------------------------------------

    def _serve(self, content: Site, told: bool, group: str) -> None:
        if group == GROUP:
            before = self.rollout
            if not self._is_rolling and before is not None and before.base is not None:
                self.rollout = self._step(None, before.is_inside, before.had_head, before.hidden)
            for server in self.fleet.servers:
                server.note_split(self.rollout.split(server) if self.rollout is not None else None)
        super()._serve(content, told, group)
        self._note_texts(content, is_hidden=group == GROUP and self._is_outside())

    def _serve_as(self, rollout: Rollout, content: Site, told: bool) -> None:
        self._let_go_live_before(content)
        self.rollout, self._is_rolling = rollout, True
        self._serve(content, told, GROUP)
        self._is_rolling = False

    def _roll(self, rollout: Rollout | None) -> None:
        self.rollout = rollout
        for server in self.fleet.servers:
            server.roll(rollout.split(server) if rollout is not None else None)
        self._note_content()
        # Who joins the head joins its log, which has what was rolled out before and superseded.
        self._texts_of_all |= self._texts_of_waves
        self._note_texts(self.pushed[GROUP], is_hidden=False)

    def _step(self, base: Site | None, inside: bool, had_head: bool, hidden: frozenset[int]) -> Rollout:
        self._steps += 1
        return Rollout(base, inside, had_head, hidden, self._steps, self.server.now)

    def _has_base(self) -> bool:
        return self.rollout is not None and self.rollout.base is not None

    def _is_outside(self) -> bool:
        return self._has_base() and self.rollout is not None and not self.rollout.is_inside

    @property
    def _next_revision(self) -> int:
        pushed = self.server.cache.pushed(GROUP)
        return pushed.revision + 1 if pushed is not None else 1

    def _note_texts(self, content: Site, *, is_hidden: bool) -> None:
        """Note which texts only waves had: ``content`` is what the head has now, and hidden or not."""
        if is_hidden and self.rollout is not None and self.rollout.base is not None:
            self._texts_of_all |= _texts(self.rollout.base)
            self._texts_of_waves |= _texts(content)
        else:
            self._texts_of_all |= _texts(content)
        self._texts_of_waves -= self._texts_of_all

    def _current(self) -> Site:
        rollout = self.rollout
        if "node" in self.pushed or rollout is None or rollout.base is None or rollout.is_inside:
            return super()._current()
        return {**rollout.base, ENDPOINT: {**rollout.base[ENDPOINT], **self.observed}}


def _texts(content: Site) -> set[Text]:
    return {(url, name, text) for url, texts in content.items() for name, text in texts.items()}


def _loaded(content: Site, load: str) -> Site:
    loads = {name: load if text in LOADS else text for name, text in content[ENDPOINT].items()}
    return {**content, ENDPOINT: loads}
