"""Heartbeats that other servers of the store have received: an instance sends its own to any of them.

They are not stored. Before the holder of the lease makes a check critical, it asks the others. While one does not
answer, the check stays as it is: losses that nobody can be sure of are held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from xds.admin.gathering import gathered_of, server_asked
from xds.admin.other_servers import Json, OtherServers
from xds.services.core.registered_instance import CheckKey

HEARTBEATS_PATH = "/heartbeats"  # of an internal route
HELD_S = 2.0  # while a server does not answer, it is asked again after this time

_log = structlog.get_logger(logger_name="xds.services.registration")


async def remaining_elsewhere(others: OtherServers, checks: Sequence[CheckKey]) -> Mapping[CheckKey, float]:
    """For how long checks are still in time by the heartbeats of other servers, in seconds."""
    if not others.names():
        return {}
    body = {"checks": [[check.node, check.id] for check in checks]}
    gathered = await gathered_of(await others.ask(server_asked("POST", HEARTBEATS_PATH, body)), _read)
    if gathered.partial:
        _log.info("registration.held", checks_n=len(checks), silent=gathered.partial)
        return dict.fromkeys(checks, HELD_S)
    remaining: dict[CheckKey, float] = {}
    for heard in gathered.documents.values():
        for check, seconds in heard.items():
            remaining[check] = max(seconds, remaining.get(check, 0.0))
    return remaining


def _read(document: Json) -> Mapping[CheckKey, float]:
    """Raises one of ``FORM_ERRORS`` for a document of another form."""
    return {CheckKey(node, id): float(seconds) for node, id, seconds in document["remaining"]}
