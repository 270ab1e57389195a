"""A server and its Envoys, whose requests and responses arrive when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from tests.support.envoy_link import Link, texts_of
from tests.support.personas import DRAINED_S, EnvoyLike, assert_in_step, push, spend
from tests.support.sansio import Server
from tests.support.texts import BAD, MALFORMED, TARGET, Site, parse
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER
from xds.protocol.cache import RETAINED_REVISIONS
from xds.protocol.dialect import Variant
from xds.protocol.events import Nacked, Send

Made = Callable[[bool, bool], Site]  # guarded or not, with trouble or without
FEATURES = ("cuts", "restarts", "refusals", "groups", "overlays", "twins", "delays")
ZONE = "za"
DELAYED_S = 8.0  # at most, while something is on its way
BACK_S = 1.5  # streams that come back do so within a moment
UNPROMPTED_S = 6.0  # longer waits are of people who read what comes
CAUGHT_UP_S = 40.0  # whatever was in the way
BEHIND = RETAINED_REVISIONS - 2  # pushes that a client may have missed


class World:
    """What was pushed, who is connected, and what was refused."""

    def __init__(self, variant: Variant, split: bool, features: frozenset[str], first: Made) -> None:
        self.split = split
        self.features = _fair(features, variant)
        self.server = Server()
        self.server.history = []
        self.guarded = False
        self.overlaid = ""
        self.pushed: dict[str, Site] = {}
        self.delayed_s = 0.0
        self.behind = 0
        self.undrained = 0  # pushes since the last connection of an old listener has ended
        self.untold: set[Link] = set()  # those that do not know of the last push
        self.clients: list[EnvoyLike] = []
        self.watches: list[Watch] = []
        self._publish(first(False, False), True, "default")
        peers = ("one", "two") if "twins" in self.features else ("one",)
        self.clients = [EnvoyLike(self.server, variant, split=split, zone=ZONE, peer=peer) for peer in peers]
        self.watches = [Watch() for _ in self.clients]
        self.slow = "delays" in self.features
        for client in self.clients:
            client.must_listen = {TARGET}
            client.start()
            client.be_slow(self.slow)

    # -- what happens -------------------------------------------------------------------------------------------

    def push(self, made: Made, told: bool = True, group: str = "default") -> None:
        """A whole site."""
        self._catch_up(1)
        content = made(self.guarded, "refusals" in self.features)
        self._publish(content, told or not self.slow, group if "groups" in self.features else "default")

    def _publish(self, content: Site, told: bool, group: str) -> None:
        self.behind += 1
        self.undrained += 1
        self.pushed[group] = apart(content) if self.split else content
        for watch in self.watches:
            watch.note_push(self._current(), len(self.server.history or ()))
        push(self.server, self.pushed[group], group, source="api" if self.split else "ads", wake=told)
        self.untold = set() if told else {link for client in self.clients for link in client.links}

    def _catch_up(self, pushes: int) -> None:
        """Nobody is further behind than the server remembers."""
        if self.behind + pushes > BEHIND:
            self.wait(CAUGHT_UP_S)
            self.check()

    def guard(self) -> None:
        """From the next push on there is a path that only listeners with a filter should have."""
        if "groups" not in self.features:  # a move to a group without would lose the filter first
            self.guarded = True

    def drop(self) -> None:
        """The group of the node's own is gone, if there was one: with all its history, so that no stream ends now."""
        if not self.features & {"cuts", "restarts"} and self.pushed.pop("node", None) is not None:
            self.server.drop("node")
            for watch in self.watches:
                watch.note_push(self._current(), len(self.server.history or ()))

    def lay_over(self, names: str) -> None:
        """Assignments get a suffix."""
        names = names if "overlays" in self.features else ""
        for watch in self.watches:
            watch.forgive(ENDPOINT, set(names) ^ set(self.overlaid))
        self.overlaid = names
        self.server.lay_over({ZONE: dict.fromkeys(self.overlaid, "+")} if self.overlaid else {})

    def move(self, choice: int) -> None:
        """One of the things happens that are about to."""
        moves: list[Callable[[], object]] = []
        for client in self.clients:
            for link in client.links:
                if link.outbox:
                    moves.append(link.deliver)
                if link.inbox:
                    moves.append(partial(client.step, link))
                if link in self.untold and link.is_up:
                    moves.append(partial(self._tell, link))
        if moves:
            moves[choice % len(moves)]()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        if seconds > UNPROMPTED_S or self.delayed_s + seconds > DELAYED_S:
            self.flush()
        if seconds > UNPROMPTED_S or not self.slow:
            self._be_slow(False)
            spend(seconds, *self.clients)
            self._be_slow(self.slow)
            self.behind = self.behind if seconds < CAUGHT_UP_S else 0
            self.undrained = self.undrained if seconds < DRAINED_S else 0
            return
        self.delayed_s += seconds
        self.server.elapse(seconds)
        for client in self.clients:
            client.tick()

    def flush(self) -> None:
        """Everything arrives and is read."""
        self.server.wake()
        self.untold.clear()
        self._be_slow(False)
        for _ in range(3):
            for client in self.clients:
                client.run()
        self._be_slow(self.slow)
        self.delayed_s = 0.0

    def cut(self, missed: Sequence[Made], restart: bool, seconds: float, backwards: bool) -> None:
        """Streams end, and come back."""
        restart = restart and "restarts" in self.features
        if not restart and "cuts" not in self.features:
            return
        self._catch_up(len(missed))
        if restart and self.undrained + len(missed) > BEHIND:
            self.wait(DRAINED_S)  # a new process knows no more of what lingers than the revisions that are retained
        gone = self.clients if restart else self.clients[:1]
        for client in gone:
            client.disconnect()
        for made in missed:
            self._publish(made(self.guarded, "refusals" in self.features), False, "default")
        self.wait(seconds)
        if restart:
            self.server.restart()
            self.lay_over(self.overlaid)
            for watch in self.watches:
                watch.forget()
        self.delayed_s = max(self.delayed_s, DELAYED_S - BACK_S)
        for client in gone:
            client.reconnect(lambda links: list(reversed(links)) if backwards else links)

    def _tell(self, link: Link) -> None:
        self.untold.discard(link)
        link.wake()

    def _be_slow(self, slow: bool) -> None:
        for client in self.clients:
            client.be_slow(slow)

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Nothing was lost, opened or said again."""
        for client, watch in zip(self.clients, self.watches, strict=True):
            assert not client.lost, client.lost
            assert not client.exposures, client.exposures
            watch.look(client)

    def finish(self, last: Made) -> None:
        """All that was refused is repaired, all waits end: everybody has what was pushed last."""
        self.slow = False
        self.flush()
        self.check()
        for group in list(self.pushed):
            self._publish(last(self.guarded, False), True, group)
        spend(2 * DRAINED_S + CAUGHT_UP_S, *self.clients)  # an internal listener lingers, and drains then
        self.check()
        for client in self.clients:
            assert_in_step(client, self._expected())

    def _current(self) -> Site:
        return self.pushed.get("node") or self.pushed["default"]

    def _expected(self) -> Site:
        content = self._current()
        overlaid = "" if "node" in self.pushed else self.overlaid
        laid = {name: text + "+" if name in overlaid else text for name, text in content[ENDPOINT].items()}
        return {**content, ENDPOINT: laid}


def _fair(features: frozenset[str], variant: Variant) -> frozenset[str]:
    """Without what a server cannot know.

    Of a response that it refused in part, an Envoy tells a new process nothing: neither what it has taken of it nor
    what it has dropped (``tests/spec/test_swap_traps`` has what comes of that); in Delta not even one that remembers. A
    new process does not know which group a node comes from.
    """
    if "refusals" in features:
        features -= {"cuts", "restarts"} if variant is Variant.DELTA else {"restarts"}
    return features - {"groups"} if "restarts" in features else features


def apart(content: Site) -> Site:
    """No two clusters share an assignment: off ADS, nobody can tell which of them its streams are for."""
    named = {name: text.partition("eds:")[2] for name, text in content[CLUSTER].items() if text.startswith("eds:")}
    clusters = {name: f"eds:{each}{name}" for name, each in named.items()}
    assignments = {f"{each}{name}": content[ENDPOINT][each] for name, each in named.items()}
    return {
        **content,
        CLUSTER: {**content[CLUSTER], **clusters},
        ENDPOINT: {**content[ENDPOINT], **assignments},
    }


Texts = frozenset[tuple[str, str]]


class Watch:
    """What a client refused, and whether it is sent again."""

    def __init__(self) -> None:
        self._seen = 0  # how much of the server's history was looked at
        self._sent: dict[tuple[Link, str], tuple[str, dict[str, str], int]] = {}  # by link and nonce; with the position
        self._pushes: list[tuple[int, Site]] = [(0, {})]  # with their positions
        self.forget()

    def forget(self) -> None:
        """The server forgot, too."""
        self._guilty: set[tuple[str, str, str]] = set()  # type, name, text
        self._whole: set[tuple[str, Texts]] = set()  # responses, until what is pushed of the type changes

    def note_push(self, content: Site, position: int) -> None:
        """What is pushed differently is worth another try, though it may be what it was by the next look."""
        _, pushed = self._pushes[-1]
        for url in {*pushed, *content}:
            changed = _changed(url, pushed, content)
            self.forgive(url, changed)
            if changed:
                self._whole = {each for each in self._whole if each[0] != url}
        self._pushes.append((position, content))

    def forgive(self, url: str, names: Collection[str]) -> None:
        """These names have other content than before, which is worth a try as if it were pushed."""
        self._guilty = {each for each in self._guilty if each[0] != url or each[1] not in names}

    def look(self, client: EnvoyLike) -> None:
        """Look at what happened since the last look."""
        history = client.server.history or []
        for position, (link, event) in enumerate(history[self._seen :], self._seen):
            if link not in client.links:
                continue
            if isinstance(event, Send) and not event.response.heartbeat:
                self._judge(link, event, position)
            elif isinstance(event, Nacked):
                self._blame(link, event)
        self._seen = len(history)
        for link in client.links:
            # What is asked for anew is answered, whatever was refused (rule 53).
            self._guilty = {each for each in self._guilty if each[:2] not in link.asked}
            link.asked.clear()

    def _judge(self, link: Link, send: Send, position: int) -> None:
        url, texts = send.type_url, texts_of(link.parse(send.body))
        self._sent[link, send.nonce] = url, texts, position
        again = [n for n, text in texts.items() if (url, n, text) in self._guilty and (url, n) not in link.asked]
        assert not again, f"refused content of {url} is sent again: {again}"
        assert (url, frozenset(texts.items())) not in self._whole, f"a refused response is sent again: {texts}"

    def _blame(self, link: Link, event: Nacked) -> None:
        url, texts, sent_at = self._sent.get((link, event.nonce), ("", {}, 0))
        bad = [name for name, text in texts.items() if {BAD, MALFORMED} & parse(text).flags]
        named = [name for name in bad if f" {name}: wrong" in event.error.message]
        # What was taken out before the refusal came is worth another try, should it be pushed again.
        then = next(content for at, content in reversed(self._pushes) if at <= sent_at)
        changed = _changed(url, then, self._pushes[-1][1])
        guilty = bad if len(texts) == 1 else named
        self._guilty.update((url, name, texts[name]) for name in guilty if name not in changed)
        if bad and url in (CLUSTER, LISTENER) and not changed:
            self._whole.add((url, frozenset(texts.items())))


def _changed(url: str, before: Site, after: Site) -> set[str]:
    """The names of a type that two sites do not have in the same text."""
    texts, others = before.get(url, {}), after.get(url, {})
    return {name for name in {*texts, *others} if texts.get(name) != others.get(name)}
