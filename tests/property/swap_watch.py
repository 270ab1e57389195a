"""What a simulated Envoy refused, and whether a server sends it again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tests.support.envoy_like import EnvoyLike
from tests.support.envoy_link import Link, texts_of
from tests.support.texts import BAD, MALFORMED, Site, parse
from xds.model.resource_type import CLUSTER, LISTENER
from xds.protocol.events import Nacked, Send

Texts = frozenset[tuple[str, str]]


class Watch:
    """What a client refused, and whether it is sent again."""

    def __init__(self) -> None:
        self._seen = 0  # how much of the server's history was looked at
        self._sent: dict[tuple[Link, str], tuple[str, dict[str, str], int]] = {}  # by link and nonce; with the position
        self._pushed: Site = {}
        self._changes: list[tuple[int, str, Collection[str]]] = []  # of pushes: position, type, names
        self.forget()

    def forget(self) -> None:
        """The server forgot, too."""
        self._guilty: set[tuple[str, str, str]] = set()  # type, name, text
        self._whole: set[tuple[str, Texts]] = set()  # responses, until what is pushed of the type changes

    def note_return(self) -> None:
        """A client that returns may be sent a refused response once more: what it has is not known."""
        self._whole = set()

    def note_push(self, content: Site, position: int) -> None:
        """What is pushed differently is worth another try, though it may be what it was by the next look."""
        before, self._pushed = self._pushed, content
        self.forgive(changes(before, content), position)

    def forgive(self, changed: Mapping[str, Collection[str]], position: int) -> None:
        """These names of each type have other content than before, which is worth a try as if it were pushed."""
        for url, names in changed.items():
            self._guilty = {each for each in self._guilty if each[0] != url or each[1] not in names}
            self._whole = {each for each in self._whole if each[0] != url}
            self._changes.append((position, url, names))

    def look(self, client: EnvoyLike) -> None:
        """Look at what happened since the last look."""
        history = client.server.history or []
        for position, (link, event) in enumerate(history[self._seen :], self._seen):
            if link not in client.links:
                continue
            if isinstance(event, Send) and not event.response.heartbeat:
                self._judge(link, event, position)
            elif isinstance(event, Nacked):
                self._blame(link, event, client.refuses)
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

    def _blame(self, link: Link, event: Nacked, refuses: Collection[str]) -> None:
        url, texts, sent_at = self._sent.get((link, event.nonce), ("", {}, 0))
        flags = {BAD, MALFORMED}
        bad = [name for name, text in texts.items() if flags & parse(text).flags or f"{name}={text}" in refuses]
        named = [name for name in bad if f" {name}: wrong" in event.error.message]
        # What was taken out before the refusal came is worth another try, should it be pushed again.
        changed = set[str]().union(*(names for at, kind, names in self._changes if at > sent_at and kind == url))
        guilty = bad if len(texts) == 1 else named
        self._guilty.update((url, name, texts[name]) for name in guilty if name not in changed)
        if bad and url in (CLUSTER, LISTENER) and not changed:
            self._whole.add((url, frozenset(texts.items())))


def changes(before: Site, after: Site) -> dict[str, set[str]]:
    """The names that two sites do not have in the same text, by type URL."""
    found = dict[str, set[str]]()
    for url in {*before, *after}:
        texts, others = before.get(url, {}), after.get(url, {})
        if names := {name for name in {*texts, *others} if texts.get(name) != others.get(name)}:
            found[url] = names
    return found
