"""The language of transcripts, and the server and client that speak it.

A transcript is blocks of commands, each followed by ``----`` and what the server made of it. Where the variants differ
there are two answers, below ``---- sotw`` and ``---- delta``. A first line ``variants: delta`` limits the variants.

Commands: ``push``, ``drop``, ``subscribe``, ``unsubscribe``, ``want``, ``ack``, ``nack``, ``late`` (answer the response
before the last), ``repeat``, ``settle``, ``tick``, ``disconnect``, ``reconnect``, ``status``, ``holds``.
Types go by their aliases; a snapshot is written ``clusters a=1 b=1; listeners l=r; routes r=a+b``, whole each time: the
texts are those of ``tests.support.texts``, their words joined by ``+``. What comes while
time passes (``tick``) is left to be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.sansio import Client, Server, names_of
from tests.support.texts import resources_of
from xds.model.resource_type import alias_of, type_url_of
from xds.protocol.dialect import Variant
from xds.protocol.events import (
    Acked,
    AckRepeated,
    AckWaitTimedOut,
    Event,
    HeldContent,
    HoldChanged,
    Identified,
    LingerChanged,
    Nacked,
    OfferTimedOut,
    Send,
    Stale,
    Subscribed,
    Synced,
    ViewChanged,
)
from xds.snapshots.linger import Lingering

DIVIDER = "----"


@dataclass(slots=True)
class Block:
    """Commands, and what is expected of each variant."""

    commands: list[str] = field(default_factory=list)
    expected: dict[Variant, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Transcript:
    """A parsed file. ``header`` lines are kept as they are."""

    header: list[str]
    variants: list[Variant]
    blocks: list[Block]

    def render(self) -> str:
        """The text of the file."""
        parts = ["\n".join(self.header)] if self.header else []
        parts += ["\n".join([*block.commands, *_render_expected(block.expected)]) for block in self.blocks]
        return "\n\n".join(parts) + "\n"


def parse(text: str) -> Transcript:
    """Read a transcript. Raises ``ValueError`` for a block without answers."""
    header: list[str] = []
    blocks: list[Block] = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        if not blocks and all(line.startswith(("#", "variants:")) for line in lines):
            header += lines
        else:
            blocks.append(_parse_block(lines))
    named = [line.partition(":")[2].split() for line in header if line.startswith("variants:")]
    variants = [Variant(name) for name in named[0]] if named else list(Variant)
    return Transcript(header, variants, blocks)


def _parse_block(lines: list[str]) -> Block:
    block = Block()
    into: list[list[str]] = [block.commands]
    for line in lines:
        if line.startswith(DIVIDER):
            variants = [Variant(line.split()[1])] if " " in line else list(Variant)
            into = [block.expected.setdefault(variant, []) for variant in variants]
        else:
            for each in into:
                each.append(line)
    return block


def _render_expected(expected: dict[Variant, list[str]]) -> list[str]:
    answers = list(expected.values())
    if all(answer == answers[0] for answer in answers):
        return [DIVIDER, *answers[0]] if answers else [DIVIDER]
    return [line for variant, answer in expected.items() for line in (f"{DIVIDER} {variant.value}", *answer)]


class Conversation:
    """One server and one client, driven by commands."""

    def __init__(self, variant: Variant) -> None:
        self._server = Server()
        self._client = Client(self._server, variant)
        self._answered: dict[str, list[Send]] = {}

    def run(self, commands: Iterable[str]) -> list[str]:
        """What the server made of these commands, line by line."""
        lines: list[str] = []
        for command in commands:
            if command.startswith("#"):
                continue
            verb, *words = command.split()
            shown = getattr(self, f"_{verb}")(words)
            lines += self._told() + (shown or [])
        return lines

    def _told(self) -> list[str]:
        events, self._client.events = self._client.events, []
        return [self._content(event) if isinstance(event, Send) else _describe(event) for event in events]

    def _content(self, send: Send) -> str:
        response = send.response
        stand_ins = sorted(set(names_of(self._client.parse(send.body))) - set(response.names))
        parts = [f"-> {alias_of(send.type_url)} {response.version_info} [{' '.join(sorted(response.names))}]"]
        parts += [f"removed [{' '.join(sorted(response.removed))}]"] if response.removed else []
        parts += [f"stand-ins [{' '.join(stand_ins)}]"] if stand_ins else []
        return " ".join(parts)

    # -- commands ---------------------------------------------------------------------------------------------------

    def _push(self, words: list[str]) -> None:
        options = {"label": "", "group": "default", "on_nack": "hold"}
        parts = " ".join(word for word in words if not _set_option(options, word)).split(";")
        content: dict[str, dict[str, str]] = {}
        for part in filter(None, map(str.strip, parts)):
            alias, *resources = part.split()
            pairs = (resource.replace("+", " ").split("=") for resource in resources)
            content[type_url_of(alias)] = dict(pairs)
        made = resources_of(content)
        self._server.push_resources(made, options["group"], options["label"], types=content, on_nack=options["on_nack"])

    def _drop(self, words: list[str]) -> None:
        self._server.drop(*words)

    def _subscribe(self, words: list[str]) -> None:
        self._client.subscribe(type_url_of(words[0]), *words[1:])

    def _unsubscribe(self, words: list[str]) -> None:
        self._client.unsubscribe(type_url_of(words[0]), *words[1:])

    def _want(self, words: list[str]) -> None:
        self._client.want(type_url_of(words[0]), words[1:])

    def _ack(self, words: list[str]) -> None:
        for alias in words:
            self._remember(self._client.ack(type_url_of(alias)))

    def _nack(self, words: list[str]) -> None:
        self._remember(self._client.nack(type_url_of(words[0]), " ".join(words[1:]) or "refused"))

    def _late(self, words: list[str]) -> None:
        self._client.reply(self._answered[type_url_of(words[0])][-2])

    def _repeat(self, words: list[str]) -> None:
        self._client.reply(self._answered[type_url_of(words[0])][-1])

    def _settle(self, words: list[str]) -> None:
        self._client.settle()

    def _tick(self, words: list[str]) -> None:
        self._server.elapse(float(words[0]))

    def _disconnect(self, words: list[str]) -> None:
        self._client.disconnect()

    def _reconnect(self, words: list[str]) -> None:
        self._client.reconnect()

    def _status(self, words: list[str]) -> list[str]:
        return [
            f"{alias_of(each.type_url)} {each.state} sent={each.version_sent} acked={each.version_acked}"
            + (" held back" if each.held_back else "")
            for each in self._client.stream.status()
        ]

    def _holds(self, words: list[str]) -> list[str]:
        return [f"{alias} {_pairs(self._client.texts(type_url_of(alias)))}" for alias in words]

    def _remember(self, send: Send) -> None:
        self._answered.setdefault(send.type_url, []).append(send)


def _set_option(options: dict[str, str], word: str) -> bool:
    name, _, value = word.partition("=")
    if name not in options:
        return False
    options[name] = value
    return True


def _pairs(texts: dict[str, str]) -> str:
    return " ".join(f"{name}={text}" for name, text in sorted(texts.items())) or "nothing"


def _describe(event: Event) -> str:
    alias = alias_of(getattr(event, "type_url", ""))
    match event:
        case Acked():
            return f"acked {alias} {event.response.version_info}"
        case Nacked():
            return f"nacked {alias} {event.response.version_info}: {event.error.message}"
        case Stale():
            return f"stale answer for {alias}"
        case AckRepeated():
            return f"repeated answer for {alias}"
        case Synced():
            return f"in step with {alias} {event.version_info}"
        case AckWaitTimedOut():
            return f"no longer waiting for {alias}"
        case OfferTimedOut():
            return f"no answer for {alias}"
        case ViewChanged():
            return f"follows {event.group or 'no group'}"
        case Subscribed():
            missing = f", missing {' '.join(event.missing)}" if event.missing else ""
            return f"asks for {alias} {' '.join([*(['*'] if event.wildcard else []), *sorted(event.names)])}{missing}"
        case Identified():
            return f"node {event.node.id} of {event.group or 'no group'}"
        case LingerChanged():
            return _lingering(event.lingering)
        case HoldChanged():
            return "; ".join(map(_held, event.held)) or "nothing is held back"
        case _:
            return type(event).__name__.lower()


def _lingering(lingering: Lingering) -> str:
    parts = [
        f"{_listed(removal.names.items())} {f'until {removal.ends_s:g}' if removal.ends_s is not None else 'for now'}"
        for removal in lingering.removals
    ]
    return f"kept: {'; '.join(parts)}" if parts else "nothing is kept"


def _held(held: HeldContent) -> str:
    return f"held back: {_listed(held.names)}, for {' '.join(held.waits_for)}"


def _listed(names: Iterable[tuple[str, frozenset[str]]]) -> str:
    return ", ".join(f"{alias_of(url)} {' '.join(sorted(each))}" for url, each in names)
