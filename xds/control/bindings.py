"""Bindings: documents of groups that say which assignment follows which service, and the assignments laid for them.

A binding is desired state. What it lays is observed state: it changes with the instances and makes no revision. While
it is not known which instances a service has, nothing is laid anew, so that what was pushed, or bound before, stays.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

import structlog

from xds.catalog.binding import Binding, InstanceSelection, read_binding
from xds.catalog.service_index import ServiceInstance
from xds.control.audit_log import UNKNOWN_CALLER, Caller
from xds.control.bound_assignment import BoundAssignment
from xds.control.catalog import ServiceCatalog
from xds.control.etags import NO_ETAG, check_etag, document_etag
from xds.control.hand_assignment import HandAssignment
from xds.control.hand_assignments import HandAssignments, WriteOptions
from xds.control.live_endpoints import LiveEndpoints, Owner, OwnerKind
from xds.control.policies import Key, document_id, key_of
from xds.control.writes import WriteLocks
from xds.lower.instances import ServedEndpoint, endpoints_in, lower_endpoints
from xds.model.errors import NotFoundError, ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.store.base import Store

KIND = "binding"
BINDINGS_LIMIT = 20_000
USER = "bindings"  # of the catalog
_LAID_AT_ONCE = 200  # before other tasks run
_LATER_S = 0.01  # a timer must not end before the time that it waits for

_BOUND = Owner(OwnerKind.BINDING)
_log = structlog.get_logger(logger_name="xds.control.bindings")


def etag_of(binding: Binding) -> str:
    """The etag of a binding."""
    return document_etag("b", binding.document())


class Bindings:
    """The bindings of all groups. A change is stored first, then in force; one change at a time.

    Use as one of the publisher's documents (`GroupDocuments`), behind ``by_hand``, which lets the endpoints of a
    binding that ends drain. ``exists`` says whether there is a group; ``datacenter`` is that of this server.
    """

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
        self.failures = 0  # assignments that could not be laid because of a bug
        self._store = store
        self._catalog = catalog
        self._live = live
        self._locks = locks
        self._by_hand = by_hand
        self._exists = exists
        self._datacenter = datacenter
        self._clock = clock
        self._bound: dict[Key, BoundAssignment] = {}
        self._of_service: dict[str, set[Key]] = {}
        self._serves = False
        self._timers: dict[Key, asyncio.TimerHandle] = {}  # until the next endpoint has drained
        catalog.listen(self.follow)

    def start(self) -> None:
        """From now on proxies are served: when an assignment is laid first, the endpoints that were pushed drain."""
        self._serves = True
        for bound in self._bound.values():
            bound.takes_over = not bound.is_laid

    # Reading

    def __len__(self) -> int:
        return len(self._bound)

    def __iter__(self) -> Iterator[Key]:
        """Group and assignment of all bindings, ordered."""
        return iter(sorted(self._bound))

    @property
    def laid_n(self) -> int:
        """The number of bindings whose assignment is laid. May be called in another thread."""
        return sum(bound.is_laid for bound in list(self._bound.values()))

    def find(self, key: Key) -> BoundAssignment | None:
        """The binding of an assignment of a group; None where it has none."""
        return self._bound.get(key)

    def get(self, key: Key) -> BoundAssignment:
        """Raises ``NotFoundError``."""
        found = self._bound.get(key)
        if found is None:
            raise NotFoundError(f"assignment {key[1]!r} of group {key[0]!r} is not bound to a service")
        return found

    def of(self, group: str) -> list[BoundAssignment]:
        """The bindings of a group, by the name of the assignment."""
        return [self._bound[key] for key in self if key[0] == group]

    def of_service(self, service: str) -> list[Key]:
        """The assignments that follow a service."""
        return sorted(self._of_service.get(service, ()))

    def draft(self, key: Key, binding: Binding) -> BoundAssignment:
        """A binding that is not in force, to see what it would select."""
        return BoundAssignment(key, InstanceSelection(binding, self._datacenter))

    def selected(self, bound: BoundAssignment) -> list[ServiceInstance]:
        """The instances that a binding selects now, by address and port."""
        selection = InstanceSelection(bound.binding, self._datacenter)  # one of its own: nothing is counted for readers
        return list(selection.selected(self._catalog.instances(bound.binding.service)))

    # As `GroupDocuments`

    async def load(self) -> None:
        """Put the stored bindings in force, in place of all others. Raises ``StoreError``.

        A binding that this release cannot read is logged, not used, and kept in the store.
        """
        docs = await self._store.docs(KIND)
        found: dict[Key, Binding] = {}
        for doc in docs:
            key = key_of(doc.id)
            try:
                found[key] = await asyncio.to_thread(read_binding, json.loads(doc.body))
            except (ValueError, ValidationError) as error:
                _log.error("binding.unreadable", group=key[0], assignment=key[1], error_message=str(error))
        for key in [key for key in self._bound if found.get(key) != self._bound[key].binding]:
            self._forget(key)  # what it has laid is nobody's, and is swept
        for key, binding in found.items():
            await self._by_hand.forget_leaving(key)  # only if a change was cut off
            try:
                if key in self._bound:
                    self._live.claim(*key, _owner(binding))
                else:
                    self._begin(key, binding, _owner(binding))
            except XdsError as error:
                if key in self._bound:
                    self._forget(key)
                _log.error("binding.refused", group=key[0], assignment=key[1], error_message=str(error))
        self._use()
        await self.follow(list(self._of_service))

    def documents(self, group: str) -> tuple[tuple[str, str], ...]:
        """Kind and id of all bindings of a group."""
        return tuple((KIND, document_id(bound.key)) for bound in self.of(group))

    async def forget(self, group: str, by: Caller = UNKNOWN_CALLER) -> None:
        """Delete the bindings of a group that has settings and no resources. Raises ``StoreError``."""
        async with self.lock:
            for bound in self.of(group):
                await self._delete(bound, by)

    def dropped(self, group: str) -> None:
        """Forget the bindings of a group; the store has deleted them with the group."""
        for bound in self.of(group):
            self._end(bound.key)
        self._use()

    # Changing

    def check(self, key: Key, binding: Binding | None, etag: str = "") -> None:
        """Raises ``ConflictError`` for another etag or owner, ``ValidationError`` when there are too many bindings."""
        held = self._bound.get(key)
        found = etag_of(held.binding) if held is not None else NO_ETAG
        check_etag(etag, found, f"assignment {key[1]!r} of group {key[0]!r} binding", key[0])
        if binding is not None:
            self._live.check(key[0], (key[1],), _owner(binding))
            if held is None and len(self) >= BINDINGS_LIMIT:
                raise ValidationError([Violation("too_many", f"there can be at most {BINDINGS_LIMIT} bindings")])

    async def put(self, key: Key, binding: Binding, etag: str = "", by: Caller = UNKNOWN_CALLER) -> bool:
        """Bind an assignment to a service; False when it is so already.

        Raises ``NotFoundError`` for an unknown group, as ``check``, ``StoreError``.
        """
        async with self._locks.groups((key[0],)), self.lock:
            if not self._exists(key[0]):
                raise NotFoundError(f"no such group: {key[0]!r}")
            self.check(key, binding, etag)
            held = self._bound.get(key)
            if held is not None and held.binding == binding:
                return False
            owner, owned_by = _owner(binding, by, self._clock()), self._live.owner(*key)
            # The name is taken before it is stored, so that nobody sets it by hand meanwhile.
            self._live.claim(*key, owner)
            document, old = binding.document(), held.binding.document() if held is not None else None
            note = by.note("binding.put", group=key[0], subject=key[1], old=old, new=document)
            try:
                await self._store.put_doc(KIND, document_id(key), json.dumps(document).encode(), note=note)
            except BaseException:
                self._live.give(*key, owned_by)
                raise
            async with self._by_hand.lock:
                await self._by_hand.forget_leaving(key)
            self._begin(key, binding, owner)
            self._use()
            self._lay(key[0], (key,))
            _log.info("binding.put", group=key[0], assignment=key[1], actor=by.actor, author=by.author, **document)
            return True

    async def delete(self, key: Key, etag: str = "", by: Caller = UNKNOWN_CALLER, drain_s: float | None = None) -> None:
        """End a binding: what was pushed is served again, with the endpoints that go until they have drained.

        They drain for ``drain_s``; None: the default. Raises ``NotFoundError``, ``ConflictError``, ``StoreError``.
        """
        async with self._locks.groups((key[0],)), self.lock:
            held = self.get(key)
            self.check(key, None, etag)
            served = self._live.get(*key)
            async with self._by_hand.lock:
                leaving = None
                if served is not None:
                    leaving = await self._by_hand.plan_leaving(key, served, WriteOptions(drain_s=drain_s, by=by))
                await self._delete(held, by, leaving)

    async def _delete(self, held: BoundAssignment, by: Caller, leaving: HandAssignment | None = None) -> None:
        group, name = held.key
        note = by.note("binding.deleted", group=group, subject=name, old=held.binding.document())
        with suppress(NotFoundError):  # it is deleted already
            await self._store.put_doc(KIND, document_id(held.key), None, note=note)
        self._forget(held.key)
        if leaving is not None:
            self._live.give(group, name, leaving.owner())
            self._by_hand.begin_leaving(held.key, leaving)
        else:
            self._live.release(group, (name,), _BOUND)
        self._use()
        _log.info("binding.deleted", group=group, assignment=name, actor=by.actor, author=by.author)

    # Laying

    async def follow(self, services: Collection[str]) -> None:
        """Lay the assignments that follow these services anew. Each group's streams are woken once."""
        by_group: dict[str, list[Key]] = {}
        for service in services:
            for key in self._of_service.get(service, ()):
                by_group.setdefault(key[0], []).append(key)
        for group, keys in sorted(by_group.items()):
            for start in range(0, len(keys), _LAID_AT_ONCE):
                self._lay(group, keys[start : start + _LAID_AT_ONCE])
                if start + _LAID_AT_ONCE < len(keys):
                    await asyncio.sleep(0)

    def _lay(self, group: str, keys: Iterable[Key]) -> None:
        put: dict[str, Resource] = {}
        for key in keys:
            bound = self._bound.get(key)
            if bound is None:  # it ended while others were laid
                continue
            try:
                resource = self._lowered(bound)
            except Exception:
                # A bug in one assignment must not keep changes from the others. What is laid stays.
                self.failures += 1
                _log.exception("binding.failed", group=group, assignment=key[1])
                continue
            if resource is not None:
                put[key[1]] = resource
                bound.is_laid = True
        if put:
            self._live.assign(group, _BOUND, put)

    def _lowered(self, bound: BoundAssignment) -> Resource | None:
        """The assignment of a binding; None while no source has ever shown an instance of the service."""
        binding, now = bound.binding, self._clock()
        instances = self._catalog.instances(binding.service)
        if not (bound.is_laid or self._catalog.is_known(binding.service)):
            return None
        laid: Collection[ServedEndpoint] = bound.endpoints(instances)
        if bound.takes_over:
            self._take_over(bound, now)
        if bound.held or bound.leaving or not bound.selects_all:
            laid = bound.advance(laid, now, self._catalog.drain_s)
            self._lay_again(bound, now)
        return lower_endpoints(bound.key[1], laid)

    def _take_over(self, bound: BoundAssignment, now: float) -> None:
        """The endpoints that proxies hold under the name drain, where they are not the service's."""
        bound.takes_over = False
        served = self._live.served(*bound.key)
        if served is not None:
            gone = (one for place, one in endpoints_in(served).items() if place not in bound.leaving)
            bound.leave(gone, now + self._catalog.drain_s, again=True)

    def _lay_again(self, bound: BoundAssignment, now: float) -> None:
        """Lay the assignment again when the next endpoint has drained."""
        group = bound.key[0]
        self._stop_timer(bound.key)
        if bound.next_end is not None:
            delay_s = max(bound.next_end - now, 0) + _LATER_S
            self._timers[bound.key] = asyncio.get_running_loop().call_later(delay_s, self._lay, group, (bound.key,))

    def _stop_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _begin(self, key: Key, binding: Binding, owner: Owner) -> None:
        before = self._bound.get(key)
        if before is not None:
            self._forget_service(before)
        self._live.claim(*key, owner)
        bound = self._bound[key] = BoundAssignment(key, InstanceSelection(binding, self._datacenter))
        bound.takes_over = self._serves
        if before is not None and before.is_laid:
            bound.is_laid = before.binding.service == binding.service
            bound.leaving = before.leaving
            bound.takes_over = True
        self._of_service.setdefault(binding.service, set()).add(key)

    def _end(self, key: Key) -> None:
        self._forget(key)
        self._live.release(key[0], (key[1],), _BOUND)

    def _forget(self, key: Key) -> None:
        self._stop_timer(key)
        self._forget_service(self._bound.pop(key))

    def _forget_service(self, bound: BoundAssignment) -> None:
        keys = self._of_service[bound.binding.service]
        keys.discard(bound.key)
        if not keys:
            del self._of_service[bound.binding.service]

    def _use(self) -> None:
        self._catalog.use(USER, self._of_service)


def _owner(binding: Binding, by: Caller = UNKNOWN_CALLER, now: float = 0.0) -> Owner:
    return Owner(OwnerKind.BINDING, binding.service, by.actor or by.author, now)
