"""A value that was hidden from its reader must not come back as the value (see ``redaction``)."""

from __future__ import annotations

from collections.abc import Iterator

from xds.codec.findings import Findings
from xds.codec.redaction import REDACTED

_HINT = "push the value itself; who may see it gets it with show_secrets=true"

Path = tuple[str | int, ...]


def may_be_redacted(text: bytes | str) -> bool:
    """False when there is nothing to look for in a whole document."""
    return REDACTED.encode() in text if isinstance(text, bytes) else REDACTED in text


def check_not_redacted(value: object, findings: Findings) -> None:
    """Refuse what was read without its secrets, naming each place."""
    for path in _places(value, ()):
        findings.add("redacted", "the value was hidden when this was read: it cannot be put back", path, hint=_HINT)


def _places(value: object, path: Path) -> Iterator[Path]:
    waiting = [(value, path)]
    while waiting:
        current, at = waiting.pop()
        if current == REDACTED:
            yield at
        elif isinstance(current, dict):
            waiting += [(inner, (*at, str(key))) for key, inner in current.items()]
        elif isinstance(current, list):
            waiting += [(inner, (*at, index)) for index, inner in enumerate(current)]
