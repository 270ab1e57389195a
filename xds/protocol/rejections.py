"""The rejected resources of one type, and the search for the bad resources in rejected responses.

A NACK rejects a whole response and rarely names the bad resource. So new content is sent "without the suspects,
alternating with halves of the suspects" (docs/protocol.md#rejections). A resource that was rejected alone or by name is
left out until its content changes. The client's last accepted version takes its place, unless it rejects that too.

    event                       effect on the resources in the response
    NACK that names resources   the named resources are rejected; the other resources are offered again
    NACK of one new resource    the resource is rejected
    NACK of several new ones    all become suspects; one of them is bad, so half of them is tried next
    NACK of nothing new         nobody is suspect: the client had accepted all of them
    ACK                         none is suspect or rejected; the bad one is among those that were rejected with them
    ACK of a full-state set     as above; if one suspect of the last rejected set remains, it is rejected, because a set
                                with it is the rejected set
    content changes             the changed resource is neither suspect nor rejected: it is new content

When the bad one is found, all other suspects are tried in one response. A push makes at most ``3 + log2(names)``
responses of a type that the client rejects: after that, the search goes on with the next push.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from itertools import pairwise
from types import MappingProxyType

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet
from xds.snapshots.responses import Response

# Of one name. Stand-ins are among the last ten versions of the removal log, at the time of each push: 20 versions may
# have been refused since one of those was.
VERSIONS_LIMIT = 32
NAMES_LIMIT = 4096  # with more, names without a resource are forgotten
Versions = tuple[str, ...]
NO_VERSIONS: Versions = ()
RefusedVersions = Mapping[str, Mapping[str, Versions]]  # of a node, by type URL and name
NOTHING_REFUSED: RefusedVersions = MappingProxyType({})
PushId = tuple[int, int]


_GRPC_INDEX = re.compile(r"resource index \d{1,10}$")


class Refused(dict[str, Versions]):
    """The versions of one type that a client is known to refuse, by name, the latest last.

    All its streams share them: Envoy requests the assignment of a changed cluster on another stream than before, and
    drops a route when the listener is taken back that named it. They are forgotten when the client accepts them, when a
    push brings them back after other content, and when the client subscribes to the name anew.
    """

    def add(self, name: str, version: str) -> None:
        """The client refuses this version."""
        before = (each for each in self.get(name, NO_VERSIONS) if each != version)
        self[name] = (*before, version)[-VERSIONS_LIMIT:]

    def note_accepted(self, versions: Mapping[str, str]) -> frozenset[str]:
        """The client accepts these versions, by name. Returns the names of which it refused this version before."""
        accepted = [name for name in self.keys() & versions.keys() if versions[name] in self[name]]
        for name in accepted:
            self._forget(name, versions[name])
        return frozenset(accepted)

    def note_push(self, before: ResourceSet, after: ResourceSet, changed: Collection[str]) -> None:
        """The newest set of the type is another one. ``changed``: names that a push between has changed or removed.

        A client that is busy does not see each push: what comes back may look to it as if nothing had been pushed.

        docs/protocol.md#rejections: nothing rejected is sent again, "unless a push that brings rejected content back
        after other content does so".
        """
        sets = before.resources, after.resources
        for name in list(self):
            old, new = (each[name].version if name in each else "" for each in sets)
            if old != new or name in changed:
                self._forget(name, new)  # what came back is tried again
        if len(self) > NAMES_LIMIT:
            for name in self.keys() - sets[1].keys():
                del self[name]

    def forgive(self, names: Iterable[str]) -> None:
        """The client subscribes to these names anew, and must be answered (rule 53)."""
        for name in names:
            self.pop(name, None)

    def among(self, names: Iterable[str], known: ResourceSet) -> frozenset[str]:
        """The names among these that are refused in the version that the set has."""
        resources = known.resources
        return frozenset(n for n in names if n in resources and resources[n].version in self.get(n, NO_VERSIONS))

    def _forget(self, name: str, version: str) -> None:
        remaining = tuple(each for each in self[name] if each != version)
        self[name] = remaining
        if not remaining:
            del self[name]


class Rejections:
    """The search for bad resources in the responses of one watch; created when its client refuses something.

    * ``refused``: what the client is known to refuse of the type, on any stream;
    * ``rejected``: the names of the present content that are among those;
    * ``placed``: versions that took the place of a suspect and were rejected with others, by name: whether they are bad
      is not known, but they do not take its place again;
    * ``suspects``: the resources that may be bad, name to version;
    * ``narrowed``: the suspects of which one is bad, as far as it is known; ``is_whole``: a set of all resources of the
      client with them was rejected, and with each of the others it was not;
    * ``probe``: the suspects that the response in flight tries;
    * ``is_new_content_due``: the next response has new content without suspects, because the last one tried suspects;
    * ``rejected_set_id``: the id of the released set at the first NACK; a full-state type is not sent until its set is
      another one;
    * ``sent_n``: the responses since the last push; ``limit_n``: the most that a push may make;
    * ``tried``: the content of the responses since the last push that were rejected: names with their versions, empty
      for a removal; ``digests``: the `Response.digest` of each.
    """

    __slots__ = (
        "_push_id",
        "digests",
        "is_new_content_due",
        "is_whole",
        "limit_n",
        "narrowed",
        "placed",
        "probe",
        "refused",
        "rejected",
        "rejected_set_id",
        "sent_n",
        "suspects",
        "tried",
    )

    def __init__(self, refused: Refused, sent_n: int) -> None:
        self.refused = refused
        self.rejected = NO_NAMES
        self.placed: dict[str, Versions] = {}
        self.suspects: dict[str, str] = {}
        self.narrowed: tuple[str, ...] = ()
        self.is_whole = False
        self.probe: frozenset[str] = NO_NAMES
        self.is_new_content_due = True
        self.rejected_set_id = 0
        self.sent_n = sent_n
        self.limit_n = 2
        self.digests: frozenset[bytes] = frozenset()
        self.tried: frozenset[tuple[str, str]] = frozenset()
        self._push_id: PushId | None = None

    def __bool__(self) -> bool:
        return bool(self.rejected or self.suspects)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was rejected, in the present content or before, and nothing is suspect."""
        return not (self.refused or self.suspects or self.placed)

    def copy(self, refused: Refused) -> Rejections:
        """The same state with a copy of what is refused."""
        clone = copy(self)
        clone.refused, clone.placed, clone.suspects = refused, dict(self.placed), dict(self.suspects)
        return clone

    def note_rejected(self, response: Response) -> None:
        """The client NACKed this response. `note_nack` follows if it has resources."""
        self.digests |= {response.digest}
        self.tried |= _content(response)

    def is_tried(self, response: Response, *, is_other: bool) -> bool:
        """Whether a response with this content was rejected since the last push, or must not follow those that were.

        ``is_other``: it says more than its resources do. It reports requested names as missing, or it is a whole set,
        in which absence means removal.
        """
        if response.digest in self.digests:
            return True
        return self.is_spent and not is_other and _content(response) <= self.tried

    # -- answers ----------------------------------------------------------------------------------------------------

    def note_nack(
        self,
        versions: Mapping[str, str],
        news: Mapping[str, str],
        named: Collection[str],
        *,
        is_whole: bool = False,
        is_unknown: bool = False,
    ) -> tuple[str, ...]:
        """Note the NACK of a response with these resources, name to version; returns the names now known to be bad.

        ``news`` are those that the client had not accepted before; ``named`` are the names in the error message.
        ``is_whole``: the response contained all resources of the client; ``is_unknown``: it may have any others.
        """
        if is_whole and is_unknown and not named:  # what is bad was in each of its sets
            news = dict(news.items() & self.suspects.items()) or news
            self._drop_suspects(self.suspects)
        candidates = news or versions
        guilty = tuple(name for name in versions if name in named)
        if not guilty and len(candidates) == 1:
            guilty = tuple(candidates)
        self.probe = NO_NAMES
        if guilty:
            for name in guilty:
                self._refuse(name, versions[name])
            self.rejected = self.rejected.union(guilty)
            self._drop_suspects([name for name, version in news.items() if self.suspects.get(name) == version])
            if self.is_spent:
                self.suspects |= {name: version for name, version in news.items() if name not in guilty}
        elif news:
            # What took the place of suspects: it does not do so again, and says nothing of them.
            placed = {n: each for n, each in news.items() if self.suspects.get(n, each) != each and not is_whole}
            for name, version in placed.items():
                self.placed[name] = (*self.placed.get(name, NO_VERSIONS), version)[-VERSIONS_LIMIT:]
            self.suspects = {**news, **self.suspects}
            if not placed:
                self.narrowed, self.is_whole = tuple(news), is_whole
        return guilty

    def note_refused(self, versions: Mapping[str, str]) -> None:
        """Note resources of an earlier response that the client rejects, name to version. The content may be newer."""
        for name, version in versions.items():
            self._refuse(name, version)

    def note_ack(self, accepted: Mapping[str, str]) -> None:
        """Note resources that the client ACKed or showed on a new stream, name to version."""
        self.probe = NO_NAMES
        self.note_proved(accepted)

    def begin_search(self) -> None:
        """A client that may have anything has accepted a first set: the search among the rest of it may begin anew."""
        self.sent_n = 0

    def note_proved(self, accepted: Mapping[str, str]) -> None:
        """Note resources that the client uses, name to version."""
        self.rejected -= self.refused.note_accepted(accepted)
        is_whole = self.is_whole
        self._drop_suspects([name for name, version in self.suspects.items() if accepted.get(name) == version])
        self.is_whole = is_whole
        if is_whole and len(self.narrowed) == 1:
            self.rejected |= {self.narrowed[0]}
            self._refuse(self.narrowed[0], self.suspects[self.narrowed[0]])

    def forget_absent(self, released: ResourceSet) -> None:
        """Resources that are not released are no part of the present content."""
        self.rejected = self.rejected & released.resources.keys()

    # -- questions --------------------------------------------------------------------------------------------------

    def left_out(self, released: ResourceSet) -> frozenset[str]:
        """The names of a set that are not offered now: rejected resources, and suspects that are not tried."""
        return self.rejected_in(released) | (self.suspects_in(released) - self.probe)

    def suspects_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are suspect in the version that the set has."""
        resources, suspects = released.resources, self.suspects
        return frozenset(n for n, version in suspects.items() if n in resources and resources[n].version == version)

    def doubted_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are rejected or suspect in the version that the set has."""
        return self.rejected_in(released) | self.suspects_in(released)

    def rejected_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are rejected in the version that the set has."""
        return self.refused.among(self.refused, released)

    # -- what is sent -----------------------------------------------------------------------------------------------

    @property
    def is_spent(self) -> bool:
        """Whether the push has made as many responses as it may."""
        return self.sent_n >= self.limit_n

    def begin_probe(self, released: ResourceSet) -> bool:
        """Choose suspects for a response with this set; False if it has none, or if the push has made its responses."""
        suspects = self.suspects_in(released)
        if not suspects or self.is_spent:
            return False
        narrowed = [name for name in self.narrowed if name in suspects]
        # Without a half, the bad one is found or is the only one in ``narrowed``: all others are tried first.
        self.probe = frozenset(narrowed[: len(narrowed) // 2]) or suspects.difference(narrowed) or suspects
        return True

    def note_content(
        self, released: ResourceSet, goal: ResourceSet, push_id: PushId, names_n: int, *, is_unknown: bool = False
    ) -> None:
        """Note the content of the type: what is released, and what is pushed (``goal``) by the push ``push_id``.

        ``names_n`` is the number of resources that the client wants; ``is_unknown``: it may have any others.
        """
        self.limit_n = 2 + max(names_n, 1).bit_length()
        if push_id != self._push_id:
            if self._push_id is not None:
                self._begin_push(push_id)
            self._push_id = push_id
        sets = goal.resources, released.resources
        self.rejected = self.rejected_in(goal) | self.rejected_in(released)
        changed = [
            name
            for name, version in self.suspects.items()
            if name not in self.rejected  # else it may be what takes the place of a rejected one
            and all((resource := each.get(name)) is None or resource.version != version for each in sets)
        ]
        if changed:
            # Of a client that may have anything, all are tried once more: what changed may have been the bad one.
            self._drop_suspects(self.suspects if is_unknown else changed)

    def forget(self, names: Collection[str]) -> None:
        """End the search among these names: the client unsubscribed, or it subscribes again."""
        if names:
            self.digests, self.tried = frozenset(), frozenset(each for each in self.tried if each[0] not in names)
        for name in names:
            self.placed.pop(name, None)
        self._drop_suspects(names)

    def _begin_push(self, push_id: PushId | None) -> None:
        self._push_id, self.sent_n, self.digests, self.tried = push_id, 0, frozenset(), frozenset()

    def _refuse(self, name: str, version: str) -> None:
        """This version is known to be bad. If it is among ``narrowed``, the search for a bad one there ends."""
        self.refused.add(name, version)
        if self.suspects.get(name) == version:
            self.narrowed = () if name in self.narrowed else self.narrowed
            self._drop_suspects((name,))

    def _drop_suspects(self, names: Iterable[str]) -> None:
        """These names are suspect no more. It may be unknown from now on whether one of ``narrowed`` is bad."""
        dropped = frozenset(names)
        if not dropped.isdisjoint(self.suspects):
            self.suspects = {name: version for name, version in self.suspects.items() if name not in dropped}
            self.narrowed = tuple(name for name in self.narrowed if name not in dropped)
            self.is_whole = False


def _content(response: Response) -> frozenset[tuple[str, str]]:
    """The names in a response with their versions, empty for a removal."""
    return frozenset((*response.versions().items(), *((name, "") for name in response.removed)))


def named_in(message: str, names: Collection[str]) -> frozenset[str]:
    """The names among ``names`` that a client's error message reports as bad; empty if it reports none.

    Envoy names bad resources of CDS and LDS ("Error adding/updating cluster(s) bad: ..."). gRPC names those of all
    types ("[resource index 0: bad: ...]"). Other messages are not searched: they may contain names of other objects.
    The message is read once, however many names there are: both may be long. A name with ``: `` in it is not found, nor
    in Envoy's messages one with a separator of its list.
    """
    parts = message.split(": ")[:-1]
    if "(s) " in message:
        listed = {name for part in parts if (name := _last_listed(part)) is not None}
    elif "resource index " in message:
        listed = {name for index, name in pairwise(parts) if _GRPC_INDEX.search(index)}
    else:
        return NO_NAMES
    return frozenset(name for name in names if name in listed) - {""}


def _last_listed(part: str) -> str | None:
    """What stands in a part of a message behind the last separator of Envoy's list; None without a separator."""
    name = part
    for separator in ("(s) ", ", ", "; ", "\n"):
        name = name.rpartition(separator)[2]
    return name if name != part else None
