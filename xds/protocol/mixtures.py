"""Which mixed set a version_info means: a client names it, and this process never made it (it has restarted, say).

A mixed set is a pushed one with some names as earlier ones have them, or without. The label has the first digits of its
hash, which is a sum over the resources (`content_digest`): every combination can be tried at the cost of an addition.
Pure functions of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from xds.model.snapshot import DIGEST_BITS, Change, ResourceSet, mix, pair_hash
from xds.model.versions import HASH_CHARS

# Combinations that are looked at: some 3 ms. Of more the later ones, of the oldest sets, are not.
_COMBINATIONS_LIMIT = 1 << 12
_HASH_SHIFT = DIGEST_BITS - 4 * HASH_CHARS
_ALL_BITS = (1 << DIGEST_BITS) - 1

ChangeOf = Callable[[ResourceSet | None, ResourceSet], Change]


class _Other(NamedTuple):
    """What a name may be instead: in another version, or not there; ``difference`` is what that adds to the sum."""

    difference: int
    name: str
    earlier: ResourceSet | None


def mixture_of(
    base: ResourceSet, history: Sequence[ResourceSet], shown: str, change_of: ChangeOf
) -> ResourceSet | None:
    """The set with this hash that is ``base`` but for names as some of a history have them, the newest first.

    ``shown`` is the hash as labels show it. None where there is none, or where it would take too long to tell.
    """
    choices = _choices(base, history, change_of)
    found = _search(int.from_bytes(base.digest, "big"), choices, _number(shown))
    if found is None:
        return None
    made = base
    for earlier in dict.fromkeys(each.earlier for each in found):
        names = [each.name for each in found if each.earlier is earlier]
        made = mix(made, earlier, names) if earlier is not None else _without(made, names)
    return _labelled(made, base)


def _choices(base: ResourceSet, history: Sequence[ResourceSet], change_of: ChangeOf) -> list[list[_Other]]:
    """For each name in which sets differ, what it may be but what it is in ``base``."""
    others: dict[str, dict[str, _Other]] = {}
    combinations = 1
    for name, version, earlier in _differing(base, history, change_of):
        known = others.get(name, {})
        if version in known:
            continue
        more = combinations // (len(known) + 1) * (len(known) + 2)
        if more > _COMBINATIONS_LIMIT:
            break
        combinations = more
        held = base.resources.get(name)
        before = pair_hash(name, held.version) if held is not None else 0
        after = pair_hash(name, version) if version else 0
        others.setdefault(name, {})[version] = _Other(after - before, name, earlier)
    return [list(each.values()) for each in others.values()]


def _differing(
    base: ResourceSet, history: Sequence[ResourceSet], change_of: ChangeOf
) -> Iterator[tuple[str, str, ResourceSet | None]]:
    """Names with a version that they have elsewhere, and where; an empty version: they are not there."""
    for older in history:
        change = change_of(older, base)
        yield from ((name, older.resources[name].version, older) for name in (*change.removed, *change.changed))
        yield from ((name, "", None) for name in change.added)


def _search(total: int, choices: Sequence[Sequence[_Other]], wanted: int) -> list[_Other] | None:
    """The choices that lead to the hash; the fewest first among the first names."""
    if not choices:
        return [] if (total & _ALL_BITS) >> _HASH_SHIFT == wanted else None
    first, rest = choices[0], choices[1:]
    found = _search(total, rest, wanted)
    if found is not None:
        return found
    for other in first:
        found = _search(total + other.difference, rest, wanted)
        if found is not None:
            return [other, *found]
    return None


def _number(shown: str) -> int:
    try:
        return int(shown, 16) if len(shown) == HASH_CHARS else -1
    except ValueError:
        return -1


def _without(base: ResourceSet, names: Sequence[str]) -> ResourceSet:
    return base.amended(base.version_info, {}, names)


def _labelled(made: ResourceSet, base: ResourceSet) -> ResourceSet:
    """``made`` as if it had been mixed at once."""
    changed = [
        name
        for name in base.resources
        if name not in made.resources or made.resources[name] is not base.resources[name]
    ]
    return mix(base, made, [*changed, *(name for name in made.resources if name not in base.resources)])
