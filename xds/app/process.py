"""The process of ``xds serve``: one server, the signals that stop it or read its settings again, its log and exit."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from xds.admin.browser_rules import ANY
from xds.app.ports import browser_rules, welcome
from xds.app.reload import Reloader
from xds.app.server import Server
from xds.app.settings import load_settings
from xds.cli.errors import CommandError, Exit
from xds.codec.schema import add_descriptor_sets
from xds.model.errors import XdsError
from xds.server.logs import configure_logging
from xds.server.transport import loop_factory
from xds.settings.settings import Settings, auth_files

FORMATS = {"auto": None, "json": True, "console": False}  # of the log: whether it is JSON

_log = structlog.get_logger(logger_name="xds.serve")


def serve(
    settings: Settings,
    make: Callable[[Settings], Server] | None = None,
    read: Callable[[], Settings] | None = None,
    files: Sequence[Path] = (),
) -> None:
    """Serve until SIGTERM or SIGINT. ``make`` builds the server; by default an ordinary one.

    On SIGHUP and when one of ``files`` changes, ``read`` reads the settings again, and those of ``auth`` and
    ``sources`` are applied. By default they are read from the environment.

    Raises ``StoreError``, ``DescriptorSetError``, ``OSError`` or ``ValueError`` when it cannot start. Once the log is
    JSON lines, nothing else is written to standard error: the reason is an event, and a ``CommandError`` is silent.
    """
    add_descriptor_sets(settings.codec.descriptor_sets)
    is_json = configure_logging(settings.logs.level, FORMATS[settings.logs.format])
    logging.captureWarnings(True)
    try:
        with asyncio.Runner(loop_factory=loop_factory(settings.server.grpc.transport)) as runner:
            runner.run(_serve(settings, make or Server, read or load_settings, files or auth_files(None), is_json))
    except (XdsError, OSError, ValueError) as error:
        if not is_json:
            raise
        _log.error("server.failed", error_message=f"cannot serve: {error}")
        raise CommandError(Exit.NEGATIVE, "") from None


async def _serve(
    settings: Settings,
    make: Callable[[Settings], Server],
    read: Callable[[], Settings],
    files: Sequence[Path],
    is_json: bool,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    warn_of_unchecked_hosts(settings)
    server = make(settings)
    reloader = Reloader(settings, read, files, server.apply, server.fleet.events, server.metrics)
    loop.add_signal_handler(signal.SIGHUP, reloader.request)
    following = asyncio.create_task(reloader.follow())
    try:
        if not await _starts(server, stop):
            return
        if not is_json:
            sys.stderr.write(welcome(*server.addresses(), is_https=settings.server.http.tls is not None))
            sys.stderr.flush()
        await server.run_until(stop)
    finally:
        following.cancel()
        await server.close()


async def _starts(server: Server, stop: asyncio.Event) -> bool:
    """Start a server; False if it is stopped before it has started, as while it waits for its database."""
    starting, stopping = asyncio.create_task(server.start()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.wait((starting,))
    return False


def warn_of_unchecked_hosts(settings: Settings) -> None:
    """Log a warning if the `Host` of requests is not checked."""
    rules = browser_rules(settings)
    if ANY in rules.hosts and not rules.trusts_tokens:
        _log.warning(
            "http.names_unchecked",
            host=settings.server.http.host,
            error_message="any web page can call this server by a name of its own (DNS rebinding):"
            " set server.http.hosts to the names that clients use",
        )
