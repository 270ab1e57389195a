"""Bindings: documents of groups that say which assignment follows which service.

A binding is desired state. Its live assignment is observed state (`xds.services.followed_assignments`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.live.by_hand import HandAssignments, WriteOptions
from xds.live.hand_assignment import HandAssignment
from xds.live.owners import LiveEndpoints, OwnedError, Owner
from xds.model.errors import NotFoundError, ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.services.catalog import ServiceCatalog
from xds.services.core.binding import Binding, InstanceSelection, read_binding
from xds.services.core.endpoints import ServedEndpoint, lower_endpoints
from xds.services.core.index import ServiceInstance
from xds.services.followed_assignments import FollowedAssignment, FollowedAssignments
from xds.services.followed_target import FollowedTarget
from xds.store.base import Store
from xds.store.document_keys import Key, document_id, key_of
from xds.store.etags import NO_ETAG, check_etag, document_etag
from xds.store.known_documents import KnownDocuments, reviewed
from xds.tasks.writes import WriteLocks

KIND = "binding"
BINDINGS_LIMIT = 20_000
USER = "bindings"  # of the catalog

BINDING = "binding"  # a kind of owners
_BOUND = Owner(BINDING, "bound to a service", is_stored=True)
_log = structlog.get_logger(logger_name="xds.services.bindings")


@dataclass(slots=True)
class BoundAssignment(FollowedAssignment):
    """An active binding: an assignment with one target."""

    @property
    def selection(self) -> InstanceSelection:
        """The instances that it selects."""
        return self.targets[0].selection

    @property
    def binding(self) -> Binding:
        """The binding."""
        return self.selection.binding

    @property
    def etag(self) -> str:
        """The etag of the binding."""
        return document_etag("b", self.binding.document())


class Bindings:
    """The bindings of all groups. A change is stored first and then takes effect; one change at a time.

    Use as one of the publisher's documents (`GroupDocuments`), after ``by_hand``, which lets the endpoints of an ended
    binding drain. ``exists`` says whether a group exists; ``datacenter`` is the datacenter of this server.
    """

    kinds = (KIND,)
    is_within = True

    def __init__(
        self,
        store: Store,
        catalog: ServiceCatalog,
        live: LiveEndpoints,
        locks: WriteLocks,
        by_hand: HandAssignments,
        exists: Callable[[str], bool],
        datacenter: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.lock = asyncio.Lock()
        self._store = store
        self.known = KnownDocuments(store, self)
        self._catalog = catalog
        self._live = live
        self._locks = locks
        self._by_hand = by_hand
        self._exists = exists
        self._datacenter = datacenter
        self._clock = clock
        self._bound: dict[Key, BoundAssignment] = {}
        self.followed = FollowedAssignments(catalog, live, _BOUND, USER, clock)
        by_hand.refuse_binding = self.refuse

    # Reading

    def __len__(self) -> int:
        return len(self._bound)

    def __iter__(self) -> Iterator[Key]:
        """Group and assignment of all bindings, ordered."""
        return iter(sorted(self._bound))

    def find(self, key: Key) -> BoundAssignment | None:
        """The binding of an assignment of a group; None if it has none."""
        return self._bound.get(key)

    def get(self, key: Key) -> BoundAssignment:
        """Raises ``NotFoundError``."""
        bound = self._bound.get(key)
        if bound is None:
            raise NotFoundError(f"assignment {key[1]!r} of group {key[0]!r} is not bound to a service")
        return bound

    def of(self, group: str) -> list[BoundAssignment]:
        """The bindings of a group, by the name of the assignment."""
        return [self._bound[key] for key in self if key[0] == group]

    def draft(self, key: Key, binding: Binding) -> BoundAssignment:
        """A binding that does not take effect, to see what it would select."""
        target = FollowedTarget(InstanceSelection(binding, self._datacenter))
        return BoundAssignment(key, (target,), partial(_lower, key[1]))

    def selected(self, bound: BoundAssignment) -> list[ServiceInstance]:
        """The instances that a binding selects now, by address and port."""
        selection = InstanceSelection(bound.binding, self._datacenter)  # not that of ``bound``: reads count nothing
        return list(selection.select(self._catalog.instances(bound.binding.service)))

    # As `GroupDocuments`

    async def load(self) -> None:
        """Replace all bindings by the stored ones. Raises ``StoreError``.

        A binding that this release cannot read is logged, not used, and kept in the store.
        """
        docs = await self.known.read(KIND)
        stored: dict[Key, Binding] = {}
        for doc in docs:
            key = key_of(doc.id)
            if (binding := await _read_stored(key, doc.body)) is not None:
                stored[key] = binding
        for key in [key for key in self._bound if stored.get(key) != self._bound[key].binding]:
            self._forget(key)  # its live assignment has no owner, so ``remove_unowned`` removes it
        for key, binding in stored.items():
            await self._by_hand.forget_leaving(key)  # there is one only if a change was interrupted
            try:
                if key in self._bound:
                    self._live.claim(*key, _owner(binding))
                else:
                    self._begin(key, binding, _owner(binding))
            except XdsError as error:
                if key in self._bound:
                    self._forget(key)
                _log.error("binding.refused", group=key[0], assignment=key[1], error_message=str(error))
        self.followed.use()
        await self.followed.follow(list(self.followed.services))

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Take over a binding that another server has stored, or deleted (None). The caller holds ``lock``.

        Of an assignment by hand and a binding that two servers have stored at once, the assignment stays.
        """
        key = key_of(id)
        binding = await _read_stored(key, body) if body is not None else None
        present = self._bound.get(key)
        if binding == (present.binding if present is not None else None):
            return
        if binding is None:
            self._end_bound(key, self._by_hand.find(key))
            return
        try:
            self._begin(key, binding, _owner(binding))
        except OwnedError:
            await self.refuse(key)
        self.followed.use()
        self.followed.serve(key[0], [key] if key in self._bound else ())

    async def refuse(self, key: Key) -> None:
        """End a binding whose assignment has another owner: two servers have stored both at once."""
        if key in self._bound:
            self._forget(key)
            self._live.set_owner(*key, None)
            self.followed.use()
        _log.error("binding.refused", group=key[0], assignment=key[1], error_message="the assignment has another owner")
        with suppress(NotFoundError):  # the other server deletes it as well
            await self._store.put_doc(KIND, document_id(key), None)

    async def forget(self, group: str, by: Caller = UNKNOWN_CALLER) -> None:
        """Delete the bindings of a group that has settings and no resources. Raises ``StoreError``."""
        await reviewed(lambda: self._delete_all(group, by))

    async def _delete_all(self, group: str, by: Caller) -> None:
        async with self.lock:
            for bound in self.of(group):
                await self._delete(bound, by)

    def dropped(self, group: str) -> None:
        """Forget the bindings of a group; the store has deleted them with the group."""
        for bound in self.of(group):
            self._end(bound.key)
        self.followed.use()

    # Changing

    def check(self, key: Key, binding: Binding | None, etag: str = "") -> None:
        """Raises ``ConflictError`` for another etag or owner, ``ValidationError`` when there are too many bindings."""
        present = self._bound.get(key)
        present_etag = present.etag if present is not None else NO_ETAG
        check_etag(etag, present_etag, f"assignment {key[1]!r} of group {key[0]!r} binding", key[0])
        if binding is not None:
            self._live.check(key[0], (key[1],), _owner(binding))
            if present is None and len(self) >= BINDINGS_LIMIT:
                raise ValidationError([Violation("too_many", f"there can be at most {BINDINGS_LIMIT} bindings")])

    async def put(self, key: Key, binding: Binding, etag: str = "", by: Caller = UNKNOWN_CALLER) -> bool:
        """Bind an assignment to a service; False if the binding is unchanged.

        Raises ``NotFoundError`` for an unknown group, as ``check``, ``StoreError``.
        """
        return await reviewed(lambda: self._put(key, binding, etag, by))

    async def _put(self, key: Key, binding: Binding, etag: str, by: Caller) -> bool:
        async with self._locks.groups((key[0],)), self.lock:
            if not self._exists(key[0]):
                raise NotFoundError(f"no such group: {key[0]!r}")
            self.check(key, binding, etag)
            present = self._bound.get(key)
            if present is not None and present.binding == binding:
                return False
            owner, former_owner = _owner(binding, by, self._clock()), self._live.owner(*key)
            # The name is claimed before the binding is stored, so that nobody sets the assignment by hand meanwhile.
            self._live.claim(*key, owner)
            document, old = binding.document(), present.binding.document() if present is not None else None
            note = by.note("binding.put", group=key[0], subject=key[1], old=old, new=document)
            try:
                await self.known.put(KIND, document_id(key), json.dumps(document).encode(), note=note)
            except BaseException:
                self._live.set_owner(*key, former_owner)
                raise
            async with self._by_hand.lock:
                await self._by_hand.forget_leaving(key)
            self._begin(key, binding, owner)
            self.followed.use()
            self.followed.serve(key[0], (key,))
            _log.info("binding.put", group=key[0], assignment=key[1], actor=by.actor, author=by.author, **document)
            return True

    async def delete(self, key: Key, etag: str = "", by: Caller = UNKNOWN_CALLER, drain_s: float | None = None) -> None:
        """End a binding: the pushed assignment is served again, together with the draining endpoints of the binding.

        They drain for ``drain_s``; None: the default. Raises ``NotFoundError``, ``ConflictError``, ``StoreError``.
        """
        await reviewed(lambda: self._unbind(key, etag, WriteOptions(drain_s=drain_s, by=by)))

    async def _unbind(self, key: Key, etag: str, options: WriteOptions) -> None:
        async with self._locks.groups((key[0],)), self.lock:
            bound = self.get(key)
            self.check(key, None, etag)
            live = self._live.get(*key)
            async with self._by_hand.lock:
                leaving = await self._by_hand.plan_leaving(key, live, options) if live is not None else None
                await self._delete(bound, options.by, leaving)

    async def _delete(self, bound: BoundAssignment, by: Caller, leaving: HandAssignment | None = None) -> None:
        group, name = bound.key
        note = by.note("binding.deleted", group=group, subject=name, old=bound.binding.document())
        with suppress(NotFoundError):  # it is deleted already
            await self.known.put(KIND, document_id(bound.key), None, note=note)
        self._end_bound(bound.key, leaving)
        _log.info("binding.deleted", group=group, assignment=name, actor=by.actor, author=by.author)

    def _end_bound(self, key: Key, leaving: HandAssignment | None) -> None:
        """End a binding whose document is deleted. The endpoints of ``leaving`` drain."""
        self._forget(key)
        if leaving is not None:
            self._live.set_owner(*key, leaving.owner())
            self._by_hand.begin_leaving(key, leaving)
        else:
            self._live.release(key[0], (key[1],), _BOUND)
        self.followed.use()

    def _begin(self, key: Key, binding: Binding, owner: Owner) -> None:
        bound = self.draft(key, binding)
        self.followed.begin(bound, owner)
        self._bound[key] = bound

    def _end(self, key: Key) -> None:
        del self._bound[key]
        self.followed.end(key[0], (key[1],))

    def _forget(self, key: Key) -> None:
        del self._bound[key]
        self.followed.forget(key)


async def _read_stored(key: Key, body: bytes) -> Binding | None:
    """A stored binding; None, and a line in the log, if this release cannot read it."""
    try:
        return await asyncio.to_thread(read_binding, json.loads(body))
    except (ValueError, ValidationError) as error:
        _log.error("binding.unreadable", group=key[0], assignment=key[1], error_message=str(error))
        return None


def _lower(name: str, endpoints: Sequence[Collection[ServedEndpoint]]) -> Resource:
    (only,) = endpoints
    return lower_endpoints(name, only)


def _owner(binding: Binding, by: Caller = UNKNOWN_CALLER, now: float = 0.0) -> Owner:
    words, actor = f"bound to service {binding.service!r}", by.actor or by.author
    return Owner(BINDING, words, binding.service, actor, now, is_stored=True)
