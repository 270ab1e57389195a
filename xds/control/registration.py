"""Registration over HTTP as a source of instances (docs/services.md#registration).

A registration is durable before it is answered. The status of a check takes effect at once, and is durable before it is
answered, too; a store that fails does not keep an instance out of service or in it. TTL checks without a heartbeat
within their TTL are critical. Their TTLs begin again when the server starts, and are paused while it does not run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakValueDictionary

import structlog

from xds.catalog import registration_edits as edits
from xds.catalog.clocks import Clocks
from xds.catalog.instance import Health
from xds.catalog.registered_instance import (
    AGENT_NODE,
    CheckKey,
    Key,
    RegisteredCheck,
    Registration,
)
from xds.catalog.registration_edits import Registrant
from xds.catalog.registration_forms import DeregistrationForm
from xds.catalog.registration_rules import CatalogRegistration
from xds.catalog.registration_table import Edit, RegistrationTable
from xds.catalog.service_index import CatalogLimits
from xds.catalog.source import Sink
from xds.control.audit_log import SERVER, UNKNOWN_CALLER, Caller
from xds.control.lifecycle import BackgroundTask
from xds.control.registration_store import RegistrationStore, registration_note
from xds.control.writes import RunningWrites
from xds.model.errors import XdsError
from xds.store.audit_entries import AuditNote
from xds.store.base import Store, StoreError

KIND = "registration"
TICK_S = 0.5
LONGEST_TICK_S = 3.0  # a longer time between ticks is one in which the server did not run
TELL_S = 0.05  # the catalog is told of changes no more often
EXPIRED_AT_ONCE = 1_000
SHOWN = 10  # names in a line of the log
RETRY_S = 5.0

# Called with the services that a change is about, before it is made. Raises to refuse it.
Permit = Callable[[Iterable[str]], None]

_log = structlog.get_logger(logger_name="xds.control.registration")


def allow_all(services: Iterable[str]) -> None:
    """The permit of a caller that may register everything."""


class Registrations:
    """All registrations, and the clocks of their checks. To be used in one event loop.

    ``told`` is called with the services that were put into the catalog. ``expired_n`` counts checks that expired,
    ``reaped_n`` instances that were deregistered because they stayed critical.
    """

    def __init__(
        self,
        store: Store,
        limits: CatalogLimits | None = None,
        clock: Callable[[], float] = time.time,
        told: Callable[[set[str]], None] = lambda services: None,
    ) -> None:
        self.table = RegistrationTable()
        self.expired_n = 0
        self.reaped_n = 0
        self.failures = 0
        self._save_again_at = 0.0
        self._records = RegistrationStore(store)
        self._sink: Sink | None = None
        self._limits = limits if limits is not None else CatalogLimits()
        self._clock = clock
        self._told = told
        self._ttls: Clocks[CheckKey] = Clocks(LONGEST_TICK_S, clock())
        self._reaps: Clocks[CheckKey] = Clocks(LONGEST_TICK_S, clock())
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._untold: set[str] = set()
        self._telling: asyncio.TimerHandle | None = None
        self._told_at = 0.0  # by the clock of the event loop
        self._unsaved: dict[Key, None] = {}  # their last status is not stored
        self._running = RunningWrites()
        self._task = BackgroundTask()

    # Start and stop

    async def load(self, sink: Sink) -> None:
        """Read all registrations and show them to ``sink``. Call it before proxies are served.

        The sink must hold no loss: a deregistration is intended. Raises ``StoreError``.
        """
        self._sink = sink
        self.table.apply(Edit(tuple(await self._records.load())))
        sink.replace({service: self.table.instances(service) for service in self.table.services()})

    def start(self) -> None:
        """Start the TTLs of all checks: from now on heartbeats can arrive."""
        self._ttls, self._reaps = (Clocks(LONGEST_TICK_S, self._clock()) for _ in range(2))
        for one in (*self.table, *self.table.nodes()):
            self._set_clocks(one.key, ())
        self._task.start(self._run())

    async def close(self) -> None:
        """Stop the clocks, and write what is not written yet."""
        await self._task.stop()
        await self._running.wait()
        self.tell()
        await self._save()
        await self._records.close()

    # What is there

    @property
    def ttl_checks_n(self) -> int:
        """How many TTL checks have a running TTL."""
        return len(self._ttls)

    @property
    def unsaved_n(self) -> int:
        """Registrations with a status that is not stored."""
        return len(self._unsaved)

    @property
    def lost_s(self) -> float:
        """For how long the TTLs were paused because the server did not run."""
        return self._ttls.lost_s

    def expires_at(self, check: CheckKey) -> float | None:
        """When a TTL check expires (epoch seconds); None: it has expired, or has none."""
        return self._ttls.ends_at(check)

    def tell(self) -> None:
        """Show the catalog now what has changed. It happens by itself soon after a change."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        untold, self._untold = self._untold, set()
        if self._sink is None or not untold:
            return
        for service in untold:
            if self.table.count(service):
                self._sink.put(service, self.table.instances(service))
            else:
                self._sink.remove(service)
        self._told(untold)

    def _tell_on_time(self) -> None:
        self._told_at = asyncio.get_running_loop().time()
        self.tell()

    # Registering. All of these raise ``ValidationError``, ``NotFoundError``, ``StoreError`` and what ``permit`` raises.

    async def register(
        self,
        one: Registration,
        by: Registrant,
        permit: Permit = allow_all,
        *,
        replaces_checks: bool = False,
        caller: Caller = UNKNOWN_CALLER,
    ) -> bool:
        """Register an instance by itself. False if nothing changes. Its TTL checks are restarted."""

        def edit() -> Edit:
            return edits.register(self.table, one, by, self._limits, replaces_checks=replaces_checks)

        permit({one.service})
        changed = await self._change(one.key, edit, permit, caller)
        self._hear(one.key, (check.id for check in one.checks))
        return changed

    async def deregister(self, id: str, permit: Permit = allow_all, caller: Caller = UNKNOWN_CALLER) -> bool:
        """Deregister an instance that registered itself. False if there is none."""
        key = Key(AGENT_NODE, id)
        return await self._change(key, lambda: edits.deregister(self.table, key), permit, caller)

    async def maintain(
        self,
        id: str,
        is_enabled: bool,
        reason: str = "",
        permit: Permit = allow_all,
        caller: Caller = UNKNOWN_CALLER,
    ) -> bool:
        """Begin or end the maintenance of an instance. False if it is in this state already."""
        key = Key(AGENT_NODE, id)
        permit(self._services_at(key))
        return await self._change(key, lambda: edits.maintain(self.table, key, is_enabled, reason), permit, caller)

    async def register_in_catalog(
        self,
        given: CatalogRegistration,
        by: Registrant,
        permit: Permit = allow_all,
        caller: Caller = UNKNOWN_CALLER,
    ) -> bool:
        """Register a node with an instance or checks, on behalf of another program. False if nothing changes."""
        one = given.registration
        key = Key(AGENT_NODE, one.id if one is not None else "") if given.node.name == AGENT_NODE else given.node.key
        if one is not None:
            permit({one.service})

        def edit() -> Edit:
            return edits.register_in_catalog(self.table, given, by, self._limits)

        return await self._change(key, edit, permit, caller)

    async def deregister_from_catalog(
        self, form: DeregistrationForm, permit: Permit = allow_all, caller: Caller = UNKNOWN_CALLER
    ) -> bool:
        """Take an instance, a check or a node out of the catalog. False if it is not there."""
        is_ours = form.node == AGENT_NODE
        of = self._owner(form.check_id) if is_ours and form.check_id and not form.service_id else None
        key = Key(form.node, form.service_id if is_ours else "") if of is None else of
        asked = (form.node, form.service_id, form.check_id)
        return await self._change(key, lambda: edits.deregister_from_catalog(self.table, *asked), permit, caller)

    # Checks

    async def register_check(
        self, id: str, check: RegisteredCheck, permit: Permit = allow_all, caller: Caller = UNKNOWN_CALLER
    ) -> bool:
        """Add a TTL check to an instance that registered itself. Its TTL is restarted."""
        key = Key(AGENT_NODE, id)
        permit(self._services_at(key))
        changed = await self._change(key, lambda: edits.add_check(self.table, key, check), permit, caller)
        self._hear(key, (check.id,))
        return changed

    async def deregister_check(self, id: str, permit: Permit = allow_all, caller: Caller = UNKNOWN_CALLER) -> bool:
        """Remove a check of an instance that registered itself."""
        check = CheckKey(AGENT_NODE, id)
        key = self._owner(id) or Key(AGENT_NODE, "")
        return await self._change(key, lambda: edits.remove_check(self.table, check), permit, caller)

    async def update_check(self, id: str, status: Health, output: str = "", permit: Permit = allow_all) -> bool:
        """Apply the status of a TTL check and restart its TTL. False if it is the same as before.

        It takes effect before it is stored: after a ``StoreError`` it holds, and is stored later. A changed output with
        the same status is shown. It is stored and passed to the catalog only with the next other change.
        """
        name = CheckKey(AGENT_NODE, id)
        edit, key = edits.update_check(self.table, name, status, output), self._owner(id)
        assert key is not None, "there is such a check"
        permit(self._services_at(key))
        before = {check.id: check.status for check in self._checks_at(key)}
        is_same = before[id] == status
        self._apply(edit, is_told=not is_same)
        self._hear(key, (id,))
        if not is_same:
            await self._running.finish(self._save_one(key))
        return not is_same

    # Changing

    async def _change(self, key: Key, edit: Callable[[], Edit], permit: Permit, caller: Caller) -> bool:
        return await self._running.finish(self._changed(key, edit, permit, caller))

    async def _changed(
        self, key: Key, edit: Callable[[], Edit], permit: Permit, caller: Caller, message: str = ""
    ) -> bool:
        """Store what ``edit`` says, then apply it. It is asked again if a check was heard meanwhile."""
        async with self._locked(key):
            planned = edit()
            if not planned:
                return False
            permit(edits.services_of(self.table, planned))
            note: AuditNote | None = registration_note(caller, self.table, planned, message)
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

    def _apply(self, edit: Edit, *, is_told: bool = True) -> None:
        """Change the table and the clocks; the catalog is updated soon after."""
        before = {key: self._checks_at(key) for key in _keys(edit)}
        touched = self.table.apply(edit)
        for key, held in before.items():
            self._set_clocks(key, held)
        if touched and is_told:
            self._untold |= touched
            if self._telling is None:
                loop = asyncio.get_running_loop()
                self._telling = loop.call_at(max(loop.time(), self._told_at + TELL_S), self._tell_on_time)

    def _set_clocks(self, key: Key, before: Iterable[RegisteredCheck]) -> None:
        """Begin the clocks of new checks, and stop those of checks that are gone."""
        now, held, there = self._clock(), {check.id: check for check in before}, self._checks_at(key)
        for check in there:
            name, was = CheckKey(key.node, check.id), held.get(check.id)
            if check.ttl_ns and (was is None or was.ttl_ns != check.ttl_ns):
                self._ttls.begin(name, check.ttl_s, now)
            if check.health is not Health.CRITICAL or not check.deregister_after_ns:
                self._reaps.stop(name)
            elif self._reaps.ends_at(name) is None:
                self._reaps.begin(name, check.deregister_after_s, now)
        for gone in held.keys() - {check.id for check in there}:
            self._ttls.stop(CheckKey(key.node, gone))
            self._reaps.stop(CheckKey(key.node, gone))

    def _hear(self, key: Key, ids: Iterable[str]) -> None:
        """Restart the TTLs of these checks."""
        named = set(ids)
        for check in self._checks_at(key):
            if check.id in named and check.ttl_ns:
                self._ttls.begin(CheckKey(key.node, check.id), check.ttl_s, self._clock())

    def _checks_at(self, key: Key) -> tuple[RegisteredCheck, ...]:
        found = self.table.at(key)
        return found.checks if found is not None else ()

    def _owner(self, check: str) -> Key | None:
        """Where a check of an instance that registered itself is."""
        found = self.table.owner(CheckKey(AGENT_NODE, check))
        return found.key if found is not None else None

    def _services_at(self, key: Key) -> set[str]:
        found = self.table.get(key)
        return {found.service} if found is not None else set()

    @asynccontextmanager
    async def _locked(self, key: Key) -> AsyncIterator[None]:
        """One change of a key at a time. Instances and checks on a node of another program have the key of the node."""
        own = key if key.node == AGENT_NODE else Key(key.node, "")
        lock = self._locks.setdefault(own, asyncio.Lock())
        async with lock:
            yield

    # Status that is not stored yet

    async def _save_one(self, key: Key) -> None:
        """Store what is under a key now. Raises ``StoreError``, and then it is tried again later."""
        async with self._locked(key):
            found = self.table.at(key)
            self._unsaved.pop(key, None)
            try:
                await self._records.write(Edit((found,)) if found is not None else Edit(delete=(key,)))
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
                # A bug must not stop the clocks of all others.
                self.failures += 1
                _log.exception("registration.failed")

    async def tick(self) -> None:
        """Let checks expire, deregister what stayed critical, and store what is not stored."""
        now = self._clock()
        self._expire(now)
        await self._reap(now)
        if self._unsaved and not now < self._save_again_at < now + RETRY_S:
            await self._save()
            self._save_again_at = now + RETRY_S if self._unsaved else now
        if self._sink is not None:
            self._sink.alive()

    def _expire(self, now: float) -> None:
        """Make the checks with an expired TTL critical."""
        expired = self._ttls.take_ended(now, EXPIRED_AT_ONCE)
        for check in expired:
            owner = self.table.owner(check)
            edit = edits.expire_check(self.table, check)
            if owner is not None and edit:
                self._apply(edit)
                self._unsaved[owner.key] = None
        if expired:
            self.expired_n += len(expired)
            _log.warning("registration.expired", checks_n=len(expired), checks=[each.id for each in expired[:SHOWN]])

    async def _reap(self, now: float) -> None:
        """Deregister the instances that have been critical for too long."""
        for check in self._reaps.take_ended(now, EXPIRED_AT_ONCE):
            owner = self.table.owner(check)
            if not isinstance(owner, Registration):
                continue
            try:
                gone = partial(edits.deregister, self.table, owner.key)
                await self._changed(owner.key, gone, allow_all, Caller(SERVER), "critical for too long")
            except StoreError as error:
                self._reaps.begin(check, RETRY_S, now)
                _log.warning("registration.not_reaped", service=owner.service, id=owner.id, error_message=str(error))
                continue
            self.reaped_n += 1
            _log.info("registration.reaped", service=owner.service, id=owner.id, check=check.id)


def _keys(edit: Edit) -> list[Key]:
    return [*edit.delete, *(one.key for one in edit.put)]
