"""One idea: registration over HTTP as a source of instances (docs/services.md#registration).

A registration is durable before its request is answered. The status of a check takes effect at once, and is durable
before its request is answered, too: a failing store keeps no instance in service or out of it. A TTL check without a
heartbeat within its TTL is critical. TTLs begin again when the server starts, and are paused while it does not run.

Of several servers of a store, each takes registrations and heartbeats, and follows the records of the others. The
holder of the lease makes checks critical and deregisters instances.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

import structlog

from xds.access.caller import SERVER, UNKNOWN_CALLER, Caller
from xds.model.errors import XdsError
from xds.services.core import registration_edits as edits
from xds.services.core.clocks import Clocks
from xds.services.core.index import CatalogLimits
from xds.services.core.instance import Health
from xds.services.core.registered_instance import (
    AGENT_NODE,
    CheckKey,
    Key,
    RegisteredCheck,
    Registration,
)
from xds.services.core.registration_edits import Registrant
from xds.services.core.registration_forms import DeregistrationForm
from xds.services.core.registration_rules import CatalogRegistration
from xds.services.core.registration_table import Edit, RegistrationTable
from xds.services.core.source import Instances
from xds.services.registration_store import RegistrationStore, registration_note
from xds.services.source_feed import SourceFeed
from xds.store.audit_entries import AuditNote
from xds.store.base import Store, StoreError
from xds.tasks.lifecycle import BackgroundTask, HoldsLease, alone
from xds.tasks.writes import RunningWrites

KIND = "registration"
TICK_S = 0.5
LONGEST_TICK_S = 3.0  # a longer time between ticks means that the server did not run
EXPIRED_AT_ONCE = 1_000
CHECKS_LOGGED = 10  # in a line of the log
RETRY_S = 5.0

# Called with the services of a change before the change is made. Raises an error to refuse the change.
Permit = Callable[[Iterable[str]], None]

# For how long checks are still in time by the heartbeats that other servers have received, in seconds.
HeardElsewhere = Callable[[Sequence[CheckKey]], Awaitable[Mapping[CheckKey, float]]]

_NOBODY = Registrant()
_log = structlog.get_logger(logger_name="xds.services.registration")


def allow_all(services: Iterable[str]) -> None:
    """The permit of a caller that may register everything."""


@dataclass(frozen=True, slots=True)
class Registering:
    """A request to register something: ``by`` registers, ``caller`` is for the audit list, ``permit`` may refuse it."""

    by: Registrant = _NOBODY
    caller: Caller = UNKNOWN_CALLER
    permit: Permit = allow_all


ANYBODY = Registering()


async def nowhere(checks: Sequence[CheckKey]) -> Mapping[CheckKey, float]:
    """Where a server is alone, nobody else receives heartbeats."""
    return {}


class Registrations:
    """All registrations, and the clocks of their checks. To be used in one event loop.

    ``expired_n`` counts expired checks, ``reaped_n`` instances that were deregistered because they stayed critical.
    """

    def __init__(
        self,
        store: Store,
        limits: CatalogLimits | None = None,
        clock: Callable[[], float] = time.time,
        holds_lease: HoldsLease = alone,
        heard_elsewhere: HeardElsewhere = nowhere,
        *,
        is_shared: bool = False,
    ) -> None:
        """``is_shared``: other servers use the store, too."""
        self.table = RegistrationTable()
        self.expired_n = 0
        self.reaped_n = 0
        self.failures = 0
        self._save_again_at = 0.0
        self._records = RegistrationStore(store, is_shared=is_shared)
        self._holds_lease = holds_lease
        self._heard_elsewhere = heard_elsewhere
        self._decides = True
        self._feed: SourceFeed | None = None
        self._limits = limits if limits is not None else CatalogLimits()
        self._clock = clock
        self._ttls: Clocks[CheckKey] = Clocks(LONGEST_TICK_S, clock())
        self._reap_delays: Clocks[CheckKey] = Clocks(LONGEST_TICK_S, clock())
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._unsaved: dict[Key, None] = {}  # registrations whose last status is not stored
        self._running = RunningWrites()
        self._task = BackgroundTask()

    # Start and stop

    async def load(self, feed: SourceFeed) -> None:
        """Read all registrations and show them to ``feed``. Call it before proxies are served.

        The feed must hold no loss: a deregistration is intended. Raises ``StoreError``.
        """
        self._feed = feed
        self.table.apply(Edit(tuple(await self._records.load())))
        feed.replace({service: self.table.instances(service) for service in self.table.services()})

    def start(self) -> None:
        """Start the TTLs of all checks: from now on heartbeats can arrive."""
        self._decides = self._holds_lease()
        self._begin_clocks()
        self._task.start(self._run())

    async def close(self) -> None:
        """Stop the clocks, and write what is not written yet."""
        await self._task.stop()
        await self._running.wait()
        await self._save()
        await self._records.close()

    # Reading

    @property
    def ttl_checks_n(self) -> int:
        """The number of TTL checks with a running TTL."""
        return len(self._ttls)

    @property
    def unsaved_n(self) -> int:
        """The number of registrations with a status that is not stored."""
        return len(self._unsaved)

    @property
    def lost_s(self) -> float:
        """For how long the TTLs were paused because the server did not run."""
        return self._ttls.lost_s

    def expires_at(self, check: CheckKey) -> float | None:
        """When a TTL check expires (epoch seconds); None: it has expired, or has none."""
        return self._ttls.ends_at(check)

    def remaining(self, checks: Iterable[CheckKey]) -> dict[CheckKey, float]:
        """For how long checks are still in time by the heartbeats that this server has received, in seconds.

        A check that this server has not known for its TTL yet counts as heard of.
        """
        now = self._clock()
        ends = ((check, self._ttls.ends_at(check)) for check in checks)
        return {check: end - now for check, end in ends if end is not None and end > now}

    # Other servers

    async def follow(self, keys: Collection[Key]) -> list[Key]:
        """Take over what is stored under these keys. Returns those that this server is changing: they come later.

        Raises ``StoreError``.
        """
        before = {key: self.table.at(key) for key in keys}
        stored = {one.key: one for one in await self._records.find(keys)}
        busy = [key for key in keys if self.table.at(key) is not before[key] or self._is_changing(key)]
        put = tuple(one for key, one in stored.items() if key not in busy and one != before[key])
        gone = [key for key in keys if key not in stored and key not in busy and before[key] is not None]
        if put or gone:
            self._apply(Edit(put, tuple(gone)))
        return busy

    async def follow_all(self) -> list[Key]:
        """The same for all keys."""
        stored = [one.key for one in await self._records.load()]
        known = [one.key for one in (*self.table, *self.table.nodes())]
        return await self.follow(list(dict.fromkeys((*stored, *known))))

    def _is_changing(self, key: Key) -> bool:
        lock = self._locks.get(_locked_key(key))
        return key in self._unsaved or (lock is not None and lock.locked())

    # Registering. All of these raise ``ValidationError``, ``NotFoundError``, ``StoreError`` and what the permit raises.

    async def register(
        self, one: Registration, request: Registering = ANYBODY, *, replaces_checks: bool = False
    ) -> bool:
        """Register an instance on its own request. False if nothing changes. Its TTLs are restarted."""

        def edit() -> Edit:
            return edits.register(self.table, one, request.by, self._limits, replaces_checks=replaces_checks)

        request.permit({one.service})
        changed = await self._change(one.key, edit, request)
        self._restart_ttls(one.key, (check.id for check in one.checks))
        return changed

    async def deregister(self, id: str, request: Registering = ANYBODY) -> bool:
        """Deregister an instance that registered itself. False if there is none."""
        key = Key(AGENT_NODE, id)
        return await self._change(key, lambda: edits.deregister(self.table, key), request)

    async def maintain(self, id: str, is_enabled: bool, reason: str = "", request: Registering = ANYBODY) -> bool:
        """Begin or end the maintenance of an instance. False if it is in this state already."""
        key = Key(AGENT_NODE, id)
        request.permit(self._services_at(key))
        return await self._change(key, lambda: edits.maintain(self.table, key, is_enabled, reason), request)

    async def register_in_catalog(self, given: CatalogRegistration, request: Registering = ANYBODY) -> bool:
        """Register a node with an instance or checks, on behalf of another program. False if nothing changes."""
        one = given.registration
        key = Key(AGENT_NODE, one.id if one is not None else "") if given.node.name == AGENT_NODE else given.node.key
        if one is not None:
            request.permit({one.service})

        def edit() -> Edit:
            return edits.register_in_catalog(self.table, given, request.by, self._limits)

        return await self._change(key, edit, request)

    async def deregister_from_catalog(self, form: DeregistrationForm, request: Registering = ANYBODY) -> bool:
        """Remove an instance, a check or a node from the catalog. False if it does not exist."""
        is_agent = form.node == AGENT_NODE
        owner = self._owner(form.check_id) if is_agent and form.check_id and not form.service_id else None
        key = Key(form.node, form.service_id if is_agent else "") if owner is None else owner
        ids = (form.node, form.service_id, form.check_id)
        return await self._change(key, lambda: edits.deregister_from_catalog(self.table, *ids), request)

    # Checks

    async def register_check(self, id: str, check: RegisteredCheck, request: Registering = ANYBODY) -> bool:
        """Add a TTL check to an instance that registered itself. Its TTL is restarted."""
        key = Key(AGENT_NODE, id)
        request.permit(self._services_at(key))
        changed = await self._change(key, lambda: edits.add_check(self.table, key, check), request)
        self._restart_ttls(key, (check.id,))
        return changed

    async def deregister_check(self, id: str, request: Registering = ANYBODY) -> bool:
        """Remove a check of an instance that registered itself."""
        check = CheckKey(AGENT_NODE, id)
        key = self._owner(id) or Key(AGENT_NODE, "")
        return await self._change(key, lambda: edits.remove_check(self.table, check), request)

    async def update_check(self, id: str, status: Health, output: str = "", request: Registering = ANYBODY) -> bool:
        """Apply the status of a TTL check and restart its TTL. False if the status is the same as before.

        The status takes effect before it is stored. After a ``StoreError`` it stays in effect, and is stored later. A
        changed output with the same status is shown, but is stored and put into the catalog only with the next change.
        """
        name = CheckKey(AGENT_NODE, id)
        edit, key = edits.update_check(self.table, name, status, output), self._owner(id)
        assert key is not None, "the check exists: ``update_check`` has found it"
        request.permit(self._services_at(key))
        before = {check.id: check.status for check in self._checks_at(key)}
        is_same = before[id] == status
        self._apply(edit, shows=not is_same)
        self._restart_ttls(key, (id,))
        if not is_same:
            self._unsaved[key] = None  # what another server wrote before must not replace it
            await self._running.finish(self._save_one(key))
        return not is_same

    # Changing

    async def _change(self, key: Key, edit: Callable[[], Edit], request: Registering) -> bool:
        return await self._running.finish(self._changed(key, edit, request))

    async def _changed(self, key: Key, edit: Callable[[], Edit], request: Registering, message: str = "") -> bool:
        """Store the edit that ``edit`` returns, then apply it. ``edit`` is called again after each write.

        A check may have been updated meanwhile; then the new edit is stored too.
        """
        async with self._locked(key):
            planned = edit()
            if not planned:
                return False
            request.permit(edits.services_of(self.table, planned))
            note: AuditNote | None = registration_note(request.caller, self.table, planned, message)
            while True:
                await self._records.write(planned, note)
                written, note = planned, None
                try:
                    planned = edit()
                except XdsError:
                    self._unsaved.update(dict.fromkeys(_keys(written)))
                    raise
                if planned == written:
                    break
            self._apply(planned)
            return True

    def _apply(self, edit: Edit, *, shows: bool = True) -> None:
        """Change the table and the clocks. With ``shows`` the changed services are offered to the catalog."""
        before = {key: self._checks_at(key) for key in _keys(edit)}
        touched = self.table.apply(edit)
        for key, checks in before.items():
            self._set_clocks(key, checks)
        if shows and self._feed is not None:
            for service in touched:
                self._feed.offer(service, partial(self._instances, service))

    def _instances(self, service: str) -> Instances | None:
        return self.table.instances(service) or None

    def _set_clocks(self, key: Key, before: Iterable[RegisteredCheck]) -> None:
        """Start the clocks of new checks, and stop those of removed checks."""
        now, former_checks, present = self._clock(), {check.id: check for check in before}, self._checks_at(key)
        for check in present:
            name, former = CheckKey(key.node, check.id), former_checks.get(check.id)
            if check.ttl_ns and (former is None or former.ttl_ns != check.ttl_ns):
                self._ttls.begin(name, check.ttl_s, now)
            if check.health is not Health.CRITICAL or not check.deregister_after_ns:
                self._reap_delays.stop(name)
            elif self._reap_delays.ends_at(name) is None:
                self._reap_delays.begin(name, check.deregister_after_s, now)
        for removed in former_checks.keys() - {check.id for check in present}:
            self._ttls.stop(CheckKey(key.node, removed))
            self._reap_delays.stop(CheckKey(key.node, removed))

    def _restart_ttls(self, key: Key, ids: Iterable[str]) -> None:
        """Restart the TTLs of these checks."""
        restarted = set(ids)
        for check in self._checks_at(key):
            if check.id in restarted and check.ttl_ns:
                self._ttls.begin(CheckKey(key.node, check.id), check.ttl_s, self._clock())

    def _checks_at(self, key: Key) -> tuple[RegisteredCheck, ...]:
        registered = self.table.at(key)
        return registered.checks if registered is not None else ()

    def _owner(self, check: str) -> Key | None:
        """The key of the registration that has a check; None for none. For instances that registered themselves."""
        owner = self.table.owner(CheckKey(AGENT_NODE, check))
        return owner.key if owner is not None else None

    def _services_at(self, key: Key) -> set[str]:
        registration = self.table.get(key)
        return {registration.service} if registration is not None else set()

    @asynccontextmanager
    async def _locked(self, key: Key) -> AsyncIterator[None]:
        """One change of a key at a time. Instances and checks on a node of another program have the key of the node."""
        lock = self._locks.setdefault(_locked_key(key), asyncio.Lock())
        async with lock:
            yield

    # Status that is not stored yet

    async def _save_one(self, key: Key) -> None:
        """Store the registration or node under a key. After a ``StoreError`` it is stored later."""
        async with self._locked(key):
            registered = self.table.at(key)
            self._unsaved.pop(key, None)
            try:
                await self._records.write(Edit((registered,)) if registered is not None else Edit(delete=(key,)))
            except StoreError:
                self._unsaved[key] = None
                raise

    async def _save(self) -> None:
        """Store the unsaved status, if the store accepts it."""
        keys = list(self._unsaved)
        results = await asyncio.gather(*map(self._save_one, keys), return_exceptions=True)
        failed = [error for error in results if isinstance(error, BaseException)]
        if failed:
            _log.warning("registration.not_stored", registrations_n=len(failed), error_message=str(failed[0]))

    # Clocks

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.tick()
            except Exception:
                # A bug must not stop the clocks of all other checks.
                self.failures += 1
                _log.exception("registration.failed")

    async def tick(self) -> None:
        """Let checks expire, deregister instances that stayed critical, and store unsaved status."""
        now = self._clock()
        if self._decides_now():
            await self._expire(now)
            await self._reap(now)
        else:
            for clocks in (self._ttls, self._reap_delays):
                clocks.take_ended(now, 0)  # time goes on
        if self._unsaved and not now < self._save_again_at < now + RETRY_S:
            await self._save()
            self._save_again_at = now + RETRY_S if self._unsaved else now
        if self._feed is not None:
            self._feed.alive()

    def _decides_now(self) -> bool:
        """Whether this server lets checks expire. One that begins gives each its whole time, as after a restart."""
        before, self._decides = self._decides, self._holds_lease()
        if self._decides and not before:
            self._begin_clocks()
        return self._decides

    def _begin_clocks(self) -> None:
        self._ttls, self._reap_delays = (Clocks(LONGEST_TICK_S, self._clock()) for _ in range(2))
        for one in (*self.table, *self.table.nodes()):
            self._set_clocks(one.key, ())

    async def _expire(self, now: float) -> None:
        """Make the checks with an expired TTL critical, unless another server has heard of them."""
        ended = self._ttls.take_ended(now, EXPIRED_AT_ONCE)
        for check, remaining_s in (await self._heard_elsewhere(ended)).items() if ended else ():
            if self._ttls.ends_at(check) is None:
                self._ttls.begin(check, remaining_s, now)
        expired = [check for check in ended if self._ttls.ends_at(check) is None]
        for check in expired:
            owner = self.table.owner(check)
            edit = edits.expire_check(self.table, check)
            if owner is not None and edit:
                self._apply(edit)
                self._unsaved[owner.key] = None
        if expired:
            self.expired_n += len(expired)
            _log.warning(
                "registration.expired", checks_n=len(expired), checks=[each.id for each in expired[:CHECKS_LOGGED]]
            )

    async def _reap(self, now: float) -> None:
        """Deregister the instances that have been critical for too long."""
        for check in self._reap_delays.take_ended(now, EXPIRED_AT_ONCE):
            owner = self.table.owner(check)
            if not isinstance(owner, Registration):
                continue
            try:
                deregister = partial(edits.deregister, self.table, owner.key)
                by_server = Registering(caller=Caller(SERVER))
                await self._changed(owner.key, deregister, by_server, "critical for too long")
            except StoreError as error:
                self._reap_delays.begin(check, RETRY_S, now)
                _log.warning("registration.not_reaped", service=owner.service, id=owner.id, error_message=str(error))
                continue
            self.reaped_n += 1
            _log.info("registration.reaped", service=owner.service, id=owner.id, check=check.id)


def _locked_key(key: Key) -> Key:
    """The key whose lock a change of ``key`` holds."""
    return key if key.node == AGENT_NODE else Key(key.node, "")


def _keys(edit: Edit) -> list[Key]:
    return [*edit.delete, *(one.key for one in edit.put)]
