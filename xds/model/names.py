"""Resource names: xdstp:// canonical form and globs (xRFC TP1)."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote, unquote

XDSTP = "xdstp://"
WILDCARD = "*"
NO_NAMES: frozenset[str] = frozenset()


def canonical_name(name: str) -> str:
    """The form in which names are compared.

    Only ``xdstp:`` names have more than one spelling: context parameters come in any order and percent-encoding
    may differ. Everything else is returned as it is.
    """
    if not name.startswith(XDSTP):
        return name
    path, hash_mark, directives = name.partition("#")
    path, question, query = path.partition("?")
    if not question:
        return name
    pairs = sorted(_decode_pair(pair) for pair in query.split("&") if pair)
    query = "&".join(f"{_encode(key)}={_encode(value)}" for key, value in pairs)
    return f"{path}?{query}{hash_mark}{directives}" if query else f"{path}{hash_mark}{directives}"


def canonical_names(names: Collection[str]) -> frozenset[str]:
    """The canonical forms of many names: a SotW client sends thousands with every ACK, few of them ``xdstp:``."""
    # One search over the joined names: 1,000 names take 19 us so, and 89 us one by one. A false hit costs no more.
    return frozenset(map(canonical_name, names) if XDSTP in "\n".join(names) else names)


def is_glob(name: str) -> bool:
    """True for an ``xdstp://authority/type/prefix/*`` collection name."""
    return name.startswith(XDSTP) and name.partition("?")[0].endswith("/*")


def matches_glob(glob: str, name: str) -> bool:
    """True when ``name`` is a direct member of the collection ``glob``: same authority, type, path and context."""
    glob_path, _, glob_query = glob.partition("?")
    path, _, query = name.partition("?")
    prefix = glob_path[:-1]
    member = path[len(prefix) :]
    return path.startswith(prefix) and query == glob_query and bool(member) and "/" not in member


def _decode_pair(pair: str) -> tuple[str, str]:
    key, _, value = pair.partition("=")
    return unquote(key), unquote(value)


def _encode(text: str) -> str:
    return quote(text, safe="-._~!$'()*+,;:@/")
