"""Settings of groups: which nodes a group selects, and how its pushes are ordered (docs/concepts.md).

The settings are documents in the store, beside the snapshots. A change of settings makes no revision. A group may have
settings before it has a snapshot; until then it matches no nodes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.filter.expression import EvaluationError
from xds.filter.filter import Filter, compile_filter
from xds.filter.selector import read_selector
from xds.model.errors import NotFoundError, ValidationError, Violation
from xds.rollouts.plan import RolloutPlan, plan_document, read_plan
from xds.rollouts.reading import FieldReader
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.membership import Rule
from xds.snapshots.order import DEFAULT_ORDER, GroupOrder
from xds.store.base import DocumentWrite, Store
from xds.store.etags import NO_ETAG, check_etag, document_etag
from xds.store.known_documents import KnownDocuments, reviewed
from xds.store.retention import DAY_S

KIND, ROLLOUT = "group", "rollout"
PRIORITY_LIMIT = 1_000_000
SELECTORS_LIMIT = 1_000
HOLD, PROCEED = "hold", "proceed"

_log = structlog.get_logger(logger_name="xds.push.groups")


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """With an empty ``selector`` nodes join by name only. Empty ``on_nack`` and None mean the default of the server.

    ``removal_delay_s`` and ``listener_drain_s`` say how long clients keep removed resources (`OrderRules`). ``rollout``
    is the plan of each push of configuration; None: a push goes to all nodes at once.
    """

    selector: str = ""
    priority: int = 0
    on_nack: str = ""
    removal_delay_s: float | None = None
    listener_drain_s: float | None = None
    rollout: RolloutPlan | None = None

    def order(self) -> GroupOrder:
        """The order settings of the group."""
        proceed = self.on_nack == PROCEED if self.on_nack else None
        return GroupOrder(proceed, self.removal_delay_s, self.listener_drain_s)


NO_SETTINGS = GroupSettings()
_FIELDS = ("selector", "priority", "on_nack", "removal_delay_s", "listener_drain_s", ROLLOUT)


def read_settings(document: object) -> GroupSettings:
    """Settings from JSON; missing fields get their defaults.

    Compiling selectors may take long, so call it in a thread. Raises ``ValidationError`` with all findings.
    """
    fields = FieldReader(document, "", _FIELDS)
    settings = GroupSettings(
        fields.selector("selector"),
        fields.integer("priority", 0, -PRIORITY_LIMIT, PRIORITY_LIMIT),
        fields.text("on_nack"),
        fields.number_or_none("removal_delay_s", 0.0, DAY_S),
        fields.number_or_none("listener_drain_s", 0.0, DAY_S),
        fields.nested(ROLLOUT, None, read_plan),
    )
    if settings.on_nack not in {"", HOLD, PROCEED}:
        fields.add("invalid_value", "on_nack", f"must be {HOLD} or {PROCEED}, not {settings.on_nack[:40]!r}")
    fields.finish()
    return settings


def check_settings(settings: GroupSettings) -> Filter:
    """Check settings, and compile the selector. Call it in a thread, and expect errors, as for `read_settings`."""
    read_settings(_given_fields(settings))
    return read_selector(settings.selector, "/selector")


@dataclass(frozen=True, slots=True)
class SettingsWrite:
    """Checked settings of a group and their compiled selector, stored in the transaction of another write."""

    group: str
    settings: GroupSettings
    selector: Filter
    by: Caller


class GroupTable:
    """The settings of all groups. A change is stored first and then takes effect; one change at a time.

    ``wake`` is called with the group whose settings changed: streams move to it or leave it, and get their resources.
    """

    kinds = (KIND,)
    is_within = False

    def __init__(self, store: Store, cache: SnapshotCache, wake: Callable[[Collection[str]], None]) -> None:
        self.known = KnownDocuments(store, self)
        self._cache = cache
        self._wake = wake
        self._settings: dict[str, GroupSettings] = {}
        self._selectors: dict[str, Filter] = {}
        self.lock = asyncio.Lock()
        cache.membership.on_failure = _log_selector_failure

    def __iter__(self) -> Iterator[str]:
        """The names of all groups with settings, ordered."""
        return iter(sorted(self._settings))

    def __contains__(self, group: object) -> bool:
        return group in self._settings

    def get(self, group: str) -> GroupSettings:
        """A group's settings; the defaults if it has none."""
        return self._settings.get(group, NO_SETTINGS)

    def failures(self, group: str) -> int:
        """How often the selector of the group could not be evaluated for a node."""
        return self._cache.membership.failures[group]

    async def load(self) -> None:
        """Load the settings of all groups. Raises ``StoreError``.

        Settings that this release cannot read are logged, not used, and kept in the store.
        """
        # Compiling the first filter loads the grammar. Do it now, in a thread, rather than at the first request.
        asyncio.get_running_loop().run_in_executor(None, compile_filter, "node.id is not empty")
        stored: list[tuple[str, GroupSettings, Filter]] = []
        for doc in await self.known.read(KIND):
            read = await _read_stored(doc.id, doc.body)
            stored += [(doc.id, *read)] if read is not None else []
        self._settings.clear()
        self._selectors.clear()
        for each in stored:
            self._add(*each)
        self._configure_cache()

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Take over settings that another server has stored, or deleted (None). The caller holds ``lock``."""
        stored = await _read_stored(id, body) if body is not None else None
        if (stored[0] if stored is not None else None) == self._settings.get(id):
            return
        if stored is not None:
            self.apply_stored(SettingsWrite(id, *stored, UNKNOWN_CALLER))
        else:
            self.dropped(id)
            self._wake((id,))

    def etag(self, group: str) -> str:
        """The etag of a group's settings; `NO_ETAG` if it has none."""
        return settings_etag(self._settings[group]) if group in self._settings else NO_ETAG

    def check(self, group: str, etag: str) -> None:
        """Raises ``ConflictError`` if the etag of the settings is not ``etag``."""
        check_etag(etag, self.etag(group), f"group {group!r} settings", group)

    async def put(
        self, group: str, settings: GroupSettings, selector: Filter, etag: str = "", by: Caller = UNKNOWN_CALLER
    ) -> bool:
        """Store checked settings and apply them; False when they are unchanged.

        ``selector`` is the result of ``check_settings``. Raises as ``check``, ``ValidationError`` when too many groups
        have a selector, ``StoreError``.
        """
        return await reviewed(lambda: self._put(SettingsWrite(group, settings, selector, by), etag))

    async def _put(self, wanted: SettingsWrite, etag: str) -> bool:
        group, settings, by = wanted.group, wanted.settings, wanted.by
        async with self.lock:
            self.check(group, etag)
            if self._settings.get(group) == settings:
                return False
            write = self.write(group, settings, by)
            await self.known.put(write.kind, write.id, write.body, note=write.note)
            self.apply_stored(wanted)
            _log.info("group.configured", group=group, actor=by.actor, author=by.author, **_given_fields(settings))
            return True

    def write(self, group: str, settings: GroupSettings, by: Caller) -> DocumentWrite:
        """The document for the store. The caller holds ``lock``, stores the document, and calls ``apply_stored``.

        Raises ``ValidationError`` when too many groups have a selector.
        """
        if settings.selector and group not in self._selectors and self._is_full():
            detail = f"at most {SELECTORS_LIMIT} groups can have a selector"
            raise ValidationError([Violation("too_many", detail, pointer="/selector")])
        old = _given_fields(self._settings[group]) if group in self._settings else None
        note = by.note("group.configured", group=group, old=old, new=_given_fields(settings))
        return self.known.write(KIND, group, _document(settings), note)

    def apply_stored(self, write: SettingsWrite) -> None:
        """Apply settings that are stored already."""
        self._add(write.group, write.settings, write.selector)
        self._configure_cache()
        self._wake((write.group,))

    async def forget(self, group: str, by: Caller = UNKNOWN_CALLER) -> bool:
        """Delete the settings of a group; False when it has none. Raises ``StoreError``."""
        return await reviewed(lambda: self._delete(group, by))

    async def _delete(self, group: str, by: Caller) -> bool:
        async with self.lock:
            if group not in self._settings:
                return False
            with suppress(NotFoundError):  # it is deleted already
                note = by.note("group.deleted", group=group, old=_given_fields(self._settings[group]))
                await self.known.put(KIND, group, None, note=note)
            self.dropped(group)
            self._wake((group,))
            return True

    def dropped(self, group: str) -> None:
        """Forget the settings of a group; the store has deleted them with the group."""
        if self._settings.pop(group, None) is not None:
            self._selectors.pop(group, None)
            self._configure_cache()

    def _is_full(self) -> bool:
        return len(self._selectors) >= SELECTORS_LIMIT

    def _add(self, group: str, settings: GroupSettings, selector: Filter) -> None:
        self._settings[group] = settings
        self._selectors.pop(group, None)
        if settings.selector.strip():
            self._selectors[group] = selector

    def _configure_cache(self) -> None:
        rules = [Rule(group, selector, self._settings[group].priority) for group, selector in self._selectors.items()]
        orders = {group: own.order() for group, own in self._settings.items()}
        self._cache.configure(rules, {group: order for group, order in orders.items() if order != DEFAULT_ORDER})


async def _read_stored(group: str, body: bytes) -> tuple[GroupSettings, Filter] | None:
    """Stored settings and their selector; None, and a line in the log, if this release cannot read them."""
    try:
        settings = await asyncio.to_thread(read_settings, json.loads(body))
        return settings, await asyncio.to_thread(check_settings, settings)
    except (ValueError, ValidationError) as error:
        _log.error("group.settings_unreadable", group=group, error_message=str(error))
        return None


def settings_etag(settings: GroupSettings) -> str:
    """The etag of settings."""
    return document_etag("s", _given_fields(settings))


def _given_fields(settings: GroupSettings) -> dict[str, Any]:
    given = {name: getattr(settings, name) for name in _FIELDS}
    given[ROLLOUT] = plan_document(settings.rollout) if settings.rollout is not None else None
    return {name: value for name, value in given.items() if value is not None}


def _document(settings: GroupSettings) -> bytes:
    """The stored document. Unset fields are left out, so that earlier releases can read it."""
    return json.dumps(_given_fields(settings)).encode()


def _log_selector_failure(group: str, error: EvaluationError) -> None:
    _log.warning("group.selector_failed", group=group, error_message=str(error))
