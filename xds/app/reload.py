"""Reload of the settings of ``auth`` and ``sources`` while the server runs: on SIGHUP, and when their files change.

If the settings cannot be read, the current ones stay, and an error is logged. For a change of any other setting, a
warning is logged: it needs a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

import structlog

from xds.access.auth_settings import AuthSettings
from xds.fleet.event_log import EventKind, EventLog
from xds.server.counters import Metrics
from xds.services.settings import source_table
from xds.settings.settings import Settings, SettingsError

LOOK_EVERY_S = 1.0
RELOADED = ("auth", "sources")  # sections

_log = structlog.get_logger(logger_name="xds.auth")

Stamp = tuple[tuple[int, int, int] | None, ...]


class Reloader:
    """Reloads settings. ``read`` reads all of them and raises ``SettingsError``.

    ``apply`` applies those of ``RELOADED`` and returns how many streams it has ended. If it raises ``SettingsError``,
    it has changed nothing.

    ``files`` are checked every second. A change counts once a file has not changed for a second, so that no
    half-written file is read.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        files: Sequence[Path],
        apply: Callable[[Settings], Awaitable[int]],
        events: EventLog,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._read = read
        self._files = files
        self._apply = apply
        self._events = events
        self._metrics = metrics
        self._requested = asyncio.Event()
        self._lock = asyncio.Lock()

    def request(self) -> None:
        """Request a reload (SIGHUP)."""
        self._requested.set()

    async def follow(self) -> None:
        """Reload whenever it is requested or a file changed. Runs until it is cancelled."""
        loaded = before = self._stamp()
        while True:
            # Not by `wait_for`: before Python 3.12 that takes no notice of a cancellation that comes with the request.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._requested.wait()
            stamp = self._stamp()
            if self._requested.is_set() or (stamp != loaded and stamp == before):
                self._requested.clear()
                loaded = stamp
                await self.reload()
            before = stamp

    async def reload(self) -> bool:
        """Read and apply the settings. False if the current settings stay.

        Must not raise: `follow` would end.
        """
        async with self._lock:
            try:
                settings = await asyncio.to_thread(self._read)
            except SettingsError as error:
                return self._failed(str(error))
            except Exception as error:
                _log.exception("auth.reload_failed")
                return self._failed(f"unexpected {type(error).__name__}")
            if _removes_access_control(self._settings, settings):
                return self._failed("the new settings would remove all access control; that needs a restart")
            if source_table(self._settings) and not source_table(settings):
                return self._failed("the new settings would remove all sources; that needs a restart")
            applied = settings.model_copy(update=_fixed_settings(self._settings))
            try:
                ended = await self._apply(applied)
            except SettingsError as error:
                return self._failed(str(error))
            self._settings, waiting = applied, _changed(self._settings, settings)
        self._metrics.auth_reloads["ok"] += 1
        auth = settings.auth
        counts = {
            "tokens_n": len(auth.tokens) + len(auth.token_sha256),
            "certificates_n": len(auth.certificates),
            "rules_n": len(auth.nodes.rules),
            "mode": auth.nodes.node_rules().mode.value,
            "streams_ended_n": ended,
        }
        _log.info("auth.reloaded", **counts)
        self._events.record(EventKind.AUTH, "reloaded", time(), details=counts)
        if waiting:
            _log.warning("settings.need_restart", sections=waiting)
        return True

    def _failed(self, message: str) -> bool:
        self._metrics.auth_reloads["failed"] += 1
        _log.error("auth.reload_failed", error_message=message, in_force="the previous settings")
        self._events.record(EventKind.AUTH, "reload_failed", time(), message=message)
        return False

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp_of, self._files))


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _removes_access_control(running: Settings, new: Settings) -> bool:
    """Whether the change would remove the access control of the running settings.

    A file that was emptied by accident must not open the server to everybody.
    """
    ports = (running.server.grpc, running.server.http)
    want_certificates = all(port.tls is not None and port.tls.client_ca is not None for port in ports)
    removes_tokens = bool(running.auth.accepted()) and not new.auth.accepted()
    return (removes_tokens and not want_certificates) or (new.auth == AuthSettings() != running.auth)


def _fixed_settings(settings: Settings) -> dict[str, Any]:
    """The sections that need a restart."""
    return {name: getattr(settings, name) for name in Settings.model_fields if name not in RELOADED}


def _changed(running: Settings, new: Settings) -> list[str]:
    """Sections that differ from the running settings."""
    return [name for name, value in _fixed_settings(running).items() if getattr(new, name) != value]
