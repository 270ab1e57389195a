"""The time from a push to the ACKs of all streams, of that version or of a later one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

# Seconds, who, which version: as the load generator records them.
Ack = tuple[float, int, str]


def convergence_s(accepted: Sequence[tuple[str, float]], acks: Iterable[Ack], streams: int) -> list[float | None]:
    """For each push, in the order of versions: from its acceptance until every stream had ACKed it or a later one.

    None where a stream never did. Never negative: an ACK may come before the answer to the push.
    """
    rank = {version: number for number, (version, _) in enumerate(accepted)}
    reached = [0.0] * len(accepted)
    followed = _by_stream(acks, rank)
    for own in followed.values():
        for number, at in enumerate(_first_at_least(own, len(accepted))):
            reached[number] = max(reached[number], at)
    complete = len(followed) >= streams
    return [
        max(0.0, at - since) if complete and at != float("inf") else None
        for at, (_, since) in zip(reached, accepted, strict=True)
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies; of an empty sequence 0."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _by_stream(acks: Iterable[Ack], rank: Mapping[str, int]) -> dict[int, list[tuple[float, int]]]:
    """Times and ranks of each stream's ACKs, in the order of time; versions that are not ranked are left out."""
    found: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for at, stream, version in sorted(acks):
        if version in rank:
            found[stream].append((at, rank[version]))
    return found


def _first_at_least(own: Sequence[tuple[float, int]], count: int) -> list[float]:
    """When a stream first ACKed each rank or a higher one; infinity where never."""
    times = [float("inf")] * count
    next_rank = 0
    for at, rank in own:
        if rank >= next_rank:
            times[next_rank : rank + 1] = [at] * (rank + 1 - next_rank)
            next_rank = rank + 1
    return times
