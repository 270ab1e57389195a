"""Finds a mixed set by its hash. In a mixed set, some names have the content of other revisions or are missing.

An earlier process made the set, and the client shows its hash in the label. The hash of a set is a sum over its
resources (`content_digest`), so each combination of contents costs one addition. The choices are divided into two
halves. The sums of one half are sorted, and for each sum of the other half the missing summand is looked up in them. So
2^20 combinations cost some 2,000 sums.

    search    tried together                                           finds
    first     all names that one push removed                          lingering names, however many
    second    the same, and single names that the pushed set has       lingering names beside rejected or held ones
    third     single names                                             any mixture of few names
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from xds.model.resource import HASH_CHARS
from xds.model.snapshot import DIGEST_BITS, ResourceSet, mix, pair_hash
from xds.protocol.diffs import ChangeOf

# Combinations in one search, which takes some 6 ms at this limit. Beyond it, the content of the last sets is not tried.
# With a higher limit, searches would find sets that the client does not hold: a label has 32 bits of the hash, so by
# chance one search in 4,096 that should find nothing already finds a set.
_COMBINATIONS_LIMIT = 1 << 20
_HASH_SHIFT = DIGEST_BITS - 4 * HASH_CHARS
_ALL_BITS = (1 << DIGEST_BITS) - 1


class _Alternative(NamedTuple):
    """Alternative content of names: their versions in the set ``earlier``; None if the names are missing.

    ``difference`` is what this content adds to the hash.
    """

    difference: int
    names: tuple[str, ...]
    earlier: ResourceSet | None


_Choices = list[list[_Alternative]]  # for each name, or group of names, its alternatives
_Sums = list[tuple[int, tuple[_Alternative, ...]]]


def mixture_of(
    base: ResourceSet, history: Sequence[ResourceSet], digits: str, change_of: ChangeOf
) -> ResourceSet | None:
    """The mixed set with this hash: ``base`` with some names as other sets of ``history`` have them.

    ``history`` has the newest set first, and contains ``base``. ``digits`` are the 8 hex digits of a label. None if no
    combination within the limit has this hash.
    """
    wanted = _number(digits)
    if wanted is None:
        return None
    total = int.from_bytes(base.digest, "big")
    groups = _lingering(base, history)
    at = next(at for at, each in enumerate(history) if each is base)
    # A mixed set has content of earlier sets. The sets before it in the history are newer, or of another group.
    differing = list(_differing(base, (*history[at + 1 :], *history[:at]), change_of))
    present = [each for each in differing if each[0] in base.resources]
    searches = [groups, _with_single(groups, present)]
    if groups or len(present) < len(differing):
        searches.append(_with_single([], differing))
    for choices in searches:
        chosen = _search(total, choices, wanted)
        if chosen is not None:
            return _mixed_set(base, chosen)
    return None


def _lingering(base: ResourceSet, history: Sequence[ResourceSet]) -> _Choices:
    """For each earlier set, the group of names that no later set has.

    Names that one push removed linger together and end together. So there are few combinations, even of many names.
    """
    found: _Choices = []
    seen, is_earlier = set(base.resources), False
    for each in history:
        if is_earlier and 1 << (len(found) + 1) <= _COMBINATIONS_LIMIT:
            names = tuple(name for name in each.resources if name not in seen)
            if names:
                difference = sum(pair_hash(name, each.resources[name].version) for name in names)
                found.append([_Alternative(difference, names, each)])
                seen.update(names)
        is_earlier = is_earlier or each is base
    return found


_Differing = tuple[str, int, ResourceSet | None]


def _differing(base: ResourceSet, history: Sequence[ResourceSet], change_of: ChangeOf) -> Iterator[_Differing]:
    """Names, what their content in another set adds to the hash, and that set; None if the set lacks the name."""
    for older in history:
        change = change_of(older, base)
        for name in (*change.removed, *change.changed):
            yield name, _hash_in(older, name) - _hash_in(base, name), older
        for name in change.added:
            yield name, -_hash_in(base, name), None


def _hash_in(found: ResourceSet, name: str) -> int:
    held = found.resources.get(name)
    return pair_hash(name, held.version) if held is not None else 0


def _with_single(groups: _Choices, differing: Sequence[_Differing]) -> _Choices:
    """The choices in ``groups``, and the alternatives of each single name, up to the limit of combinations."""
    single: dict[str, dict[int, _Alternative]] = {}
    combinations = 1 << len(groups)
    for name, difference, earlier in differing:
        known = single.get(name, {})
        if difference in known:
            continue
        combinations = combinations // (len(known) + 1) * (len(known) + 2)
        if combinations > _COMBINATIONS_LIMIT:
            break
        single.setdefault(name, {})[difference] = _Alternative(difference, (name,), earlier)
    return [*groups, *(list(each.values()) for each in single.values())]


def _search(total: int, choices: _Choices, wanted: int) -> tuple[_Alternative, ...] | None:
    """The smallest combination with the hash ``wanted``; None if there is none. ``total`` is the hash of the base."""
    left, right = _halved(choices)
    sums = [(difference & _ALL_BITS, chosen) for difference, chosen in _sums(left)]
    sums.sort(key=itemgetter(0))
    best: tuple[_Alternative, ...] | None = None
    for difference, chosen in _sums(right):
        missing = ((wanted << _HASH_SHIFT) - total - difference) & _ALL_BITS
        for others in _within(sums, missing):
            if best is None or len(others) + len(chosen) < len(best):
                best = (*others, *chosen)
    return best


def _halved(choices: _Choices) -> tuple[_Choices, _Choices]:
    """The choices in two halves with a similar number of combinations."""
    left: _Choices = []
    right: _Choices = []
    of_left = of_right = 1
    for each in choices:
        if of_left <= of_right:
            left.append(each)
            of_left *= len(each) + 1
        else:
            right.append(each)
            of_right *= len(each) + 1
    return left, right


def _sums(choices: _Choices) -> _Sums:
    """All combinations of choices, each with the sum of its differences."""
    sums: _Sums = [(0, ())]
    for alternatives in choices:
        sums += [(total + each.difference, (*chosen, each)) for total, chosen in sums for each in alternatives]
    return sums


def _within(sums: _Sums, missing: int) -> Iterator[tuple[_Alternative, ...]]:
    """The combinations with the sum ``missing``, whatever the bits that a label does not have; ``sums`` are sorted."""
    end = missing + (1 << _HASH_SHIFT)
    for first, last in ((missing, end), (0, end - _ALL_BITS - 1)):  # sums are modulo 2^DIGEST_BITS
        for at in range(bisect_left(sums, (first,)), len(sums)):
            if sums[at][0] >= last:
                break
            yield sums[at][1]


def _mixed_set(base: ResourceSet, chosen: Sequence[_Alternative]) -> ResourceSet:
    """``base`` with these alternatives."""
    mixed = base
    for earlier in dict.fromkeys(each.earlier for each in chosen):
        names = [name for each in chosen if each.earlier is earlier for name in each.names]
        mixed = mix(mixed, earlier, names) if earlier is not None else mixed.amended(mixed.version_info, {}, names)
    return _labelled(mixed, base)


def _labelled(mixed: ResourceSet, base: ResourceSet) -> ResourceSet:
    """``mixed`` with the label and the mixture of a set that is mixed from ``base`` in one step."""
    changed = [
        name
        for name in base.resources
        if name not in mixed.resources or mixed.resources[name] is not base.resources[name]
    ]
    return mix(base, mixed, [*changed, *(name for name in mixed.resources if name not in base.resources)])


def _number(digits: str) -> int | None:
    """The value of the hex digits of a label; None if they are not 8 hex digits."""
    try:
        return int(digits, 16) if len(digits) == HASH_CHARS else None
    except ValueError:
        return None
