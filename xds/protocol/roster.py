"""The tracks of one client, by type, and which of them lag behind what was released to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from xds.protocol.track import Track


class Roster:
    """Who is subscribed to what, over all streams of a client. Nothing is decided here.

    Most clients have one stream, so one track of each type: tuples are the smallest to keep.
    """

    __slots__ = ("_lagging_since_s", "_tracks")

    def __init__(self) -> None:
        self._tracks: dict[str, tuple[Track, ...]] = {}
        self._lagging_since_s: dict[str, float] = {}  # only types of which some track lags

    def add(self, track: Track, now_s: float) -> None:
        """A stream asked for a type; until it is answered, it lags."""
        type_url = track.type.type_url
        self._tracks[type_url] = (*self._tracks.get(type_url, ()), track)
        self.lag(track, now_s)

    def remove(self, track: Track) -> None:
        """The stream of this track ended."""
        type_url = track.type.type_url
        left = tuple(other for other in self._tracks.get(type_url, ()) if other is not track)
        if left:
            self._tracks[type_url] = left
        else:
            self._tracks.pop(type_url, None)

    def of(self, type_url: str) -> Collection[Track]:
        """The tracks of a type."""
        return self._tracks.get(type_url, ())

    def has_rejected(self, type_url: str) -> bool:
        """True when a client refuses what it was sent last of a type."""
        return type_url in self._lagging_since_s and any(track.is_rejected for track in self.of(type_url))

    def named(self, type_url: str) -> list[Track]:
        """The tracks of a type whose clients name all they want."""
        return [track for track in self.of(type_url) if not track.subscription.interest.wildcard]

    def names(self, type_url: str) -> frozenset[str]:
        """All names subscribed to for a type."""
        return names_of(self.of(type_url))

    def lag(self, track: Track, now_s: float) -> None:
        """The track does not hold what was released."""
        track.lags = True
        self._lagging_since_s.setdefault(track.type.type_url, now_s)

    def catch_up(self, track: Track) -> bool:
        """The track holds what was released, or is gone; True when it was the last of its type to lag."""
        type_url = track.type.type_url
        was_lagging, track.lags = track.lags, False
        if type_url in self._lagging_since_s:
            for other in self._tracks.get(type_url, ()):
                if other.lags:
                    return False
            del self._lagging_since_s[type_url]
            if not self._lagging_since_s:
                self._lagging_since_s.clear()  # an empty one that once held something keeps room for more
        return was_lagging

    def lagging(self, type_url: str) -> Collection[Track]:
        """The tracks of a type that do not hold what was released."""
        if type_url not in self._lagging_since_s:
            return ()
        return [track for track in self._tracks.get(type_url, ()) if track.lags]

    def lagging_since_s(self, type_url: str) -> float | None:
        """Since when some track of the type lags; None when none does."""
        return self._lagging_since_s.get(type_url)

    def all_lagging(self) -> Iterable[Track]:
        """Every track that lags, of whatever type."""
        return (track for type_url in self._lagging_since_s for track in self._tracks.get(type_url, ()) if track.lags)


def names_of(tracks: Iterable[Track]) -> frozenset[str]:
    """All names that tracks subscribe to."""
    return frozenset().union(*(track.subscription.interest.names for track in tracks))
