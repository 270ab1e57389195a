"""What Envoy has against a configuration, in few words."""

from __future__ import annotations

import re

DETAIL_LIMIT = 500

_OPENING = re.compile(r"^.*?error initializing (?:configuration|config) '[^']*': ?", re.DOTALL)
# A whole message as text, put before what is wrong with it; Envoy varies these words on purpose.
_DUMP = re.compile(r"goo\.gle/debug\w+\s.*\n: (?=Proto constraint)", re.DOTALL)
_MARKER = re.compile(r"goo\.gle/debug\w+\s*")
_CONSTRAINT = re.compile(r"Proto constraint validation failed \((.*)\)\s*$", re.DOTALL)
_CAUSE = re.compile(r"^(\w+?)ValidationError\.([\w\[\]]+): (.*)$", re.DOTALL)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def shorten(output: str) -> str:
    """Envoy's complaint without the dump of the message; constraints as ``type: path: what is wrong``."""
    text = _DUMP.sub("", _OPENING.sub("", output.strip(), count=1))
    constraint = _CONSTRAINT.search(text)
    if constraint is not None:
        text = text[: constraint.start()] + _plain(constraint[1])
    text = " ".join(_MARKER.sub("", text).split())
    return text if len(text) <= DETAIL_LIMIT else text[:DETAIL_LIMIT] + "..."


def _plain(chain: str) -> str:
    """``AValidationError.B[0]: embedded ... | caused by BValidationError.C: why`` is ``A: b[0].c: why``."""
    causes = [_CAUSE.match(cause.strip()) for cause in chain.split("| caused by ")]
    known = [cause for cause in causes if cause is not None]
    if len(known) < len(causes) or not known:
        return chain
    path = ".".join(_CAPITAL.sub("_", cause[2]).lower() for cause in known)
    return f"{known[0][1]}: {path}: {known[-1][3]}"
