"""Finds a mixed set by its hash: a pushed set in which some names have the content of other revisions or are missing.

An earlier process made it and sent its hash to the client in the label. The hash of a set is a sum over its resources
(`content_digest`), so each combination of contents costs one addition. The combinations are halved and sorted, and for
each sum of one half the sum that is lacking is looked up in the other: 2^20 combinations cost some 2,000 sums.

    search    what is tried together                                   finds
    first     all names that one push removed                          what lingers, however many names that are
    second    the same, and single names that the pushed set has       what lingers beside what is rejected or held
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

# Combinations in one search, which takes some 6 ms then. If there are more, the content of the sets that come last is
# not tried. More would find sets that the client does not hold: a label has 32 bits of the hash, so by chance one
# search in 4,096 that should find nothing finds a set already.
_COMBINATIONS_LIMIT = 1 << 20
_HASH_SHIFT = DIGEST_BITS - 4 * HASH_CHARS
_ALL_BITS = (1 << DIGEST_BITS) - 1


class _Other(NamedTuple):
    """Other content of names: their versions in the set ``earlier``, or None if they are missing.

    ``difference`` is what this content adds to the hash.
    """

    difference: int
    names: tuple[str, ...]
    earlier: ResourceSet | None


_Choices = list[list[_Other]]  # for each name, or names together, its other content
_Sums = list[tuple[int, tuple[_Other, ...]]]


def mixture_of(
    base: ResourceSet, history: Sequence[ResourceSet], shown: str, change_of: ChangeOf
) -> ResourceSet | None:
    """The mixed set with the hash ``shown``: ``base`` with some names as other sets of ``history`` have them.

    ``history`` has the newest set first, ``base`` among them. ``shown`` has the 8 hex digits of a label. None if no
    combination has this hash, or the one that has it is beyond the limit of combinations.
    """
    number = _number(shown)
    if number is None:
        return None
    total = int.from_bytes(base.digest, "big")
    together = _lingering(base, history)
    at = next(at for at, each in enumerate(history) if each is base)
    # A mixed set has content of earlier sets; those before it in the history are newer, or of another group.
    others = list(_differing(base, (*history[at + 1 :], *history[:at]), change_of))
    present = [each for each in others if each[0] in base.resources]
    searches = [together, _with_single(together, present)]
    if together or len(present) < len(others):
        searches.append(_with_single([], others))
    for choices in searches:
        found = _search(total, choices, number)
        if found is not None:
            return _made(base, found)
    return None


def _lingering(base: ResourceSet, history: Sequence[ResourceSet]) -> _Choices:
    """For each earlier set, all names that it was the last one to have.

    What a push removes lingers together, and ends together. So there are few combinations, however many names linger.
    """
    found: _Choices = []
    seen, is_earlier = set(base.resources), False
    for each in history:
        if is_earlier and 1 << (len(found) + 1) <= _COMBINATIONS_LIMIT:
            names = tuple(name for name in each.resources if name not in seen)
            if names:
                difference = sum(pair_hash(name, each.resources[name].version) for name in names)
                found.append([_Other(difference, names, each)])
                seen.update(names)
        is_earlier = is_earlier or each is base
    return found


_Differing = tuple[str, int, ResourceSet | None]


def _differing(base: ResourceSet, history: Sequence[ResourceSet], change_of: ChangeOf) -> Iterator[_Differing]:
    """Names, what their content in another set adds to the hash, and that set; None for it if it lacks the name."""
    for older in history:
        change = change_of(older, base)
        for name in (*change.removed, *change.changed):
            yield name, _hash_in(older, name) - _hash_in(base, name), older
        for name in change.added:
            yield name, -_hash_in(base, name), None


def _hash_in(found: ResourceSet, name: str) -> int:
    held = found.resources.get(name)
    return pair_hash(name, held.version) if held is not None else 0


def _with_single(together: _Choices, differing: Sequence[_Differing]) -> _Choices:
    """``together``, and for each single name its other content, up to the limit of combinations."""
    single: dict[str, dict[int, _Other]] = {}
    combinations = 1 << len(together)
    for name, difference, earlier in differing:
        known = single.get(name, {})
        if difference in known:
            continue
        combinations = combinations // (len(known) + 1) * (len(known) + 2)
        if combinations > _COMBINATIONS_LIMIT:
            break
        single.setdefault(name, {})[difference] = _Other(difference, (name,), earlier)
    return [*together, *(list(each.values()) for each in single.values())]


def _search(total: int, choices: _Choices, wanted: int) -> tuple[_Other, ...] | None:
    """The choices that lead to the hash, the fewest ones; None if none do."""
    left, right = _halved(choices)
    starts = [(difference & _ALL_BITS, taken) for difference, taken in _sums(left)]
    starts.sort(key=itemgetter(0))
    best: tuple[_Other, ...] | None = None
    for difference, taken in _sums(right):
        lacking = ((wanted << _HASH_SHIFT) - total - difference) & _ALL_BITS
        for found in _within(starts, lacking):
            if best is None or len(found) + len(taken) < len(best):
                best = (*found, *taken)
    return best


def _halved(choices: _Choices) -> tuple[_Choices, _Choices]:
    """The choices in two parts with about as many combinations each."""
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
    """All combinations of choices, with what each adds to the hash."""
    found: _Sums = [(0, ())]
    for others in choices:
        found += [(total + other.difference, (*taken, other)) for total, taken in found for other in others]
    return found


def _within(starts: _Sums, lacking: int) -> Iterator[tuple[_Other, ...]]:
    """The combinations whose sums are ``lacking``, up to the bits that a label does not have; ``starts`` are sorted."""
    end = lacking + (1 << _HASH_SHIFT)
    for first, last in ((lacking, end), (0, end - _ALL_BITS - 1)):  # sums begin again behind the last one
        for at in range(bisect_left(starts, (first,)), len(starts)):
            if starts[at][0] >= last:
                break
            yield starts[at][1]


def _made(base: ResourceSet, found: Sequence[_Other]) -> ResourceSet:
    """``base`` with this other content."""
    made = base
    for earlier in dict.fromkeys(each.earlier for each in found):
        names = [name for each in found if each.earlier is earlier for name in each.names]
        made = mix(made, earlier, names) if earlier is not None else made.amended(made.version_info, {}, names)
    return _labelled(made, base)


def _labelled(made: ResourceSet, base: ResourceSet) -> ResourceSet:
    """``made`` with the label and mixture of a set that is mixed from ``base`` in one step."""
    changed = [
        name
        for name in base.resources
        if name not in made.resources or made.resources[name] is not base.resources[name]
    ]
    return mix(base, made, [*changed, *(name for name in made.resources if name not in base.resources)])


def _number(shown: str) -> int | None:
    """The number that the digits of a label are; None if they are no digits."""
    try:
        return int(shown, 16) if len(shown) == HASH_CHARS else None
    except ValueError:
        return None
