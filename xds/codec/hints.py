"""What a person may have meant: advice for findings."""

from __future__ import annotations

import re
from difflib import get_close_matches

from google.protobuf.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration

from xds.codec import schema
from xds.codec.findings import bare
from xds.model.resource_type import TYPE_PREFIX

# Nobody mistypes a longer name, and likeness takes time that grows with the square of the length.
NAME_LIMIT = 120
_TYPE_CUTOFF = 0.85
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(ms|us|s|m|h)?")
_UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def field_hint(key: str, descriptor: Descriptor) -> str:
    """``did you mean "stat_prefix"?`` for a key that is almost a field, in any case or notation."""
    if len(key) > NAME_LIMIT:
        return ""
    names = {bare(field.name): field.name for field in descriptor.fields}
    close = get_close_matches(bare(key), list(names), n=1)
    return f'did you mean "{names[close[0]]}"?' if close else ""


def type_hint(type_url: str) -> str:
    """The type that a URL is almost that of: misspelt, of another version, or moved elsewhere."""
    name = type_url.rpartition("/")[2]
    if not name or len(name) > NAME_LIMIT:
        return ""
    if schema.descriptor(name) is not None:
        return f'did you mean "{TYPE_PREFIX}{name}"?'
    known = schema.message_names()
    same = [one for one in known if one.rpartition(".")[2] == name.rpartition(".")[2]]
    close = get_close_matches(name, same, n=1, cutoff=0.0) or get_close_matches(name, known, n=1, cutoff=_TYPE_CUTOFF)
    return f'did you mean "{TYPE_PREFIX}{close[0]}"?' if close else ""


def duration_hint(value: object) -> str:
    """How to write the span that ``value`` seems to be: ``100ms`` is ``0.100s``."""
    found = None if isinstance(value, bool) else _SPAN.fullmatch(str(value)[:NAME_LIMIT])
    if found is None:
        return ""
    span = Duration()
    span.FromNanoseconds(round(float(found[1]) * _UNIT_S[found[2]] * 1e9))
    return f'write "{span.ToJsonString()}"'
