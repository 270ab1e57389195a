"""The names of services and config entries are compared without case, as in Consul, and shown as they were written."""

from __future__ import annotations

from typing import NewType

# A name as it is compared: a key of the catalog and of config entries, not to be shown.
ComparedName = NewType("ComparedName", str)


def compared(name: str) -> ComparedName:
    """The name in lower case. Each character becomes one character, as in Go: not all do with ``str.lower``."""
    return ComparedName(name.lower() if name.isascii() else "".join(each.lower()[0] for each in name))
