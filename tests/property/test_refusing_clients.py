"""A client that refuses any response and any name at random, whatever it accepted before, amid pushes that go back.

Two promises (docs/protocol.md#rejections). What was refused alone or by name is not sent again on the connection,
unless a push brought it back after other content. And a push makes few responses of a type, however much of it is
refused: at most ``3 + log2(names)``, and one more for each further part of the content that a transition releases: of
this push, or of an earlier one that was held until now.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from random import Random

import pytest

from tests.support.sansio import Client, Server
from tests.support.texts import Site, push
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SECRET, alias_of
from xds.protocol.dialect import Variant
from xds.protocol.events import Event, Send

NAMES = tuple("abcdefgh")
SUBSCRIBED = {
    CLUSTER: (),
    ENDPOINT: NAMES,
    LISTENER: (),
    ROUTE: NAMES,
    SECRET: NAMES,
    EXTENSION_CONFIG: NAMES,
}
VERSIONS = 4  # of each resource: few, so that pushes bring content back
REPEATS = 10 * len(NAMES)  # for one push: some of each listener that goes back and forth
RETURNED_S, DRAINED_S = 40.0, 1300.0


class RefusingClient(Client):
    """Fails when it is sent what it has refused, or too often what it was sent before.

    ``counts``: the responses of each type from the first that it refused since the last push, but for those with a
    resource in a version that none of them had, and those that repeat what it holds behind a listener that newly names
    it (docs/protocol.md#additions). ``repeats_n``: the latter, of all types.
    """

    def watch(self) -> None:
        self.counts: dict[str, int] = {}
        self.repeats_n = 0
        self.sent: dict[str, set[bytes]] = {}
        self.refused: dict[tuple[str, str], set[bytes]] = {}

    def take(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, Send):
                self._judge(event)
        return super().take(events)

    def note_push(self, before: Site, after: Site) -> None:
        """What a push brings back after other content may be sent again."""
        self.counts, self.sent, self.repeats_n = {}, {}, 0
        for (url, name), versions in self.refused.items():
            text = after[url].get(name)
            if text is not None and text != before[url].get(name):
                versions.discard(body(name, text))

    def refuse(self, random: Random) -> None:
        """Refuse the oldest response: some of its names, or without a word."""
        send, _ = self.inbox[0]
        names = sorted(send.response.names)
        named = random.sample(names, random.randint(1, len(names))) if names and random.random() < 0.4 else []
        guilty = named or (names if len(names) == 1 else ())
        for name in guilty:
            versions = self.refused.setdefault((send.type_url, name), set())
            versions.add(send.response.resource_set.resources[name].body)
        self.counts.setdefault(send.type_url, 1)
        told = ", ".join(f"{name}: wrong" for name in named)
        self.nack(message=f"Error adding/updating resource(s) {told}" if named else "cannot be read")

    def _judge(self, send: Send) -> None:
        url, response = send.type_url, send.response
        bodies = {name: response.resource_set.resources[name].body for name in response.names}
        for name, sent in bodies.items():
            assert sent not in self.refused.get((url, name), ()), f"{alias_of(url)} {sent!r} is sent again"
        before, held = self.sent.setdefault(url, set()), self.texts(url) if url in self.types else {}
        if bodies and all(body(name, held.get(name, "")) == sent for name, sent in bodies.items()):
            self.repeats_n += 1
            assert self.repeats_n <= REPEATS, "what the client holds is repeated again and again"
        elif before.issuperset(bodies.values()) and url in self.counts:
            self.counts[url] += 1
            assert self.counts[url] <= 3 + log2(len(NAMES)), f"too many responses of {alias_of(url)} for one push"
        before.update(bodies.values())


def body(name: str, text: str) -> bytes:
    """The body of a resource, as `make_resource` makes it."""
    return f"{name}={text}".encode()


class World:
    """One client of one variant, on one stream or on one a type, and a group whose content changes at random."""

    def __init__(self, seed: int, variant: Variant, *, split: bool, pushes: int) -> None:
        self.random = Random(seed)
        self.server = Server()
        self.content: Site = {url: {} for url in SUBSCRIBED}
        self.split = split
        self.refusing = self.random.choice((0.3, 0.7, 0.95, 1.0))
        self.pushes = pushes
        urls = list(SUBSCRIBED) if split else [""]
        self.streams = [RefusingClient(self.server, variant, type_url=url) for url in urls]
        for stream in self.streams:
            stream.watch()

    def play(self) -> None:
        """Push and refuse; at the end, everything that is pushed is accepted."""
        self.push(1.0)
        for at, (url, names) in enumerate(SUBSCRIBED.items()):
            self.streams[at if self.split else 0].subscribe(url, *names)
        for _ in range(self.pushes):
            self.answer()
            if self.random.random() < 0.1:
                self.refusing = self.random.choice((0.3, 0.7, 0.95, 1.0))
            if self.random.random() < 0.1:
                self.server.elapse(RETURNED_S)
                self.answer()
            self.push(self.random.choice((0.05, 0.3, 1.0)))
        self.end()

    def push(self, share: float) -> None:
        """Change a share of all resources: to one of a few texts, or away."""
        before, random = self.content, self.random
        self.content = {url: dict(texts) for url, texts in before.items()}
        for url, texts in self.content.items():
            for name in NAMES:
                if random.random() < share:
                    texts.pop(name, None)
                    if random.random() < 0.9:
                        texts[name] = text_of(url, random)
        for stream in self.streams:
            stream.note_push(before, self.content)
        push(self.server, self.content, source="api" if self.split else "ads")

    def answer(self) -> None:
        """Answer what was sent, at random, until nothing more is sent."""
        while busy := [stream for stream in self.streams if stream.inbox]:
            stream = self.random.choice(busy)
            if self.random.random() < self.refusing:
                stream.refuse(self.random)
            else:
                stream.ack()

    def end(self) -> None:
        """After a push of all new content that nobody refuses, the client has all of it."""
        self.refusing = 0.0
        last = {url: dict.fromkeys(NAMES, f"{text_of(url, self.random)} @last") for url in self.content}
        before, self.content = self.content, last
        for stream in self.streams:
            stream.note_push(before, last)
        push(self.server, last, source="api" if self.split else "ads")
        for _ in range(3):
            self.answer()
            self.server.elapse(DRAINED_S)
        self.answer()
        held = {url: stream.texts(url) for stream in self.streams for url in stream.types}
        assert held == last


def text_of(url: str, random: Random) -> str:
    """A text with references that fit together: a listener names a route, which names a cluster."""
    version = f"@{random.randrange(VERSIONS)}"
    return {LISTENER: f"{random.choice(NAMES)} {version}", ROUTE: f"{random.choice(NAMES)} {version}"}.get(url, version)


def worlds(seeds: Iterable[int], pushes: int) -> None:
    """Play a world of each kind for each seed."""
    for seed in seeds:
        for variant in Variant:
            for split in (False, True):
                try:
                    World(seed, variant, split=split, pushes=pushes).play()
                except AssertionError as error:
                    error.add_note(f"seed {seed}, {variant}, {'split' if split else 'ads'}")
                    raise


def test_random_refusals_make_few_responses() -> None:
    worlds(range(4), pushes=8)


def test_refused_removals_alone_make_no_further_response() -> None:
    """Each response of a push told them, and all of its resources were refused."""
    World(35, Variant.DELTA, split=False, pushes=2).play()
    World(38, Variant.DELTA, split=True, pushes=1).play()


@pytest.mark.soak
def test_a_stand_in_is_none_of_the_many_versions_that_were_refused_before() -> None:
    """The retained revisions had a version that was refused 16 versions of its name ago."""
    World(3694211473, Variant.SOTW, split=False, pushes=370).play()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_random_refusals_make_few_responses_for_four_thousand_pushes() -> None:
    seed = Random().randrange(1 << 32)
    worlds(range(seed, seed + 2), pushes=500)
