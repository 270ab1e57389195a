"""Turns away clients that have newer content than this server, while its database does not answer.

Other servers may have served pushes that this one has not seen. A client that comes from there would be taken back to
older content. It is refused (UNAVAILABLE), so it keeps what it has and tries another server. Everybody else is served.

A SotW client shows a label; one of a revision above the newest known is newer. A label that a caller chose says
nothing. A Delta client shows versions; one that no push known here had is newer. Live assignments, and others that are
in no push, are not judged: each server observes them by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import NODE_BYTES, Node
from xds.model.resource import default_version_info, version_stem
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.clients import ClientTable
from xds.protocol.group_logs import GroupLogs
from xds.protocol.requests import Request
from xds.snapshots.cache import SnapshotCache, View
from xds.wire.node import decode_node

_LABEL = re.compile(r"(\d{1,18})\+[0-9a-f]{8}")


class VersionGuard:
    """Judges what clients show while ``is_cut_off()``."""

    def __init__(self, cache: SnapshotCache, clients: ClientTable, is_cut_off: Callable[[], bool]) -> None:
        self._cache = cache
        self._clients = clients
        self._is_cut_off = is_cut_off

    def check(self, request: Request, type_url: str, node: Node | None, api_version: str = "") -> None:
        """Raises ``RemoteProtocolError`` for the first request of a type that shows newer content than is served.

        ``node`` is that of the stream, None for its first request.
        """
        shown = request.initial_versions or request.version_info
        if not shown or request.nonce or not self._is_cut_off():
            return
        node = node if node is not None else decode_node(request.node, NODE_BYTES)
        view = self._cache.resolve(node, api_version)
        if view is None:
            return
        if isinstance(shown, str):
            is_newer = self._is_newer(view, type_url, shown)
        else:
            is_newer = any(not self._is_known(view, node, type_url, *each) for each in shown.items())
        if is_newer:
            message = "the client has newer configuration than this server, whose database does not answer"
            raise RemoteProtocolError(StatusCode.UNAVAILABLE, message)

    def _is_newer(self, view: View, type_url: str, label: str) -> bool:
        match = _LABEL.fullmatch(label)
        pushed = self._cache.pushed(view.group)
        if match is None or pushed is None or int(match[1]) <= pushed.revision:
            return False
        return not _is_own_number(view.snapshot.get(type_url), pushed) and not view.log.has_label(type_url, label)

    def _is_known(self, view: View, node: Node, type_url: str, name: str, version: str) -> bool:
        if view.log.has_known(type_url, name, version) or self._is_observed(view, type_url, name):
            return True
        former = [each for each in self._clients.followed(node.id) if each.group != view.group]
        logs = GroupLogs(self._cache, view.log, former, view.api_version).all[1:]
        return any(log.has_known(type_url, name, version) for log in logs)

    def _is_observed(self, view: View, type_url: str, name: str) -> bool:
        """Whether an assignment is live, or of a locality, or not pushed here at all."""
        if resource_type(type_url).alias != "endpoints":
            return False
        if name in self._cache.observed(view.group) or view.source is not None:
            return True
        pushed = self._cache.pushed(view.group)
        return pushed is None or name not in pushed.get(type_url).resources


def _is_own_number(served: ResourceSet, pushed: Snapshot) -> bool:
    """Whether callers name pushes by numbers: their labels look like revisions."""
    stored = pushed.get(served.type.type_url)
    stem = version_stem(stored.version_info, stored.digest)
    is_own = not stem.isdecimal() or stored.version_info != default_version_info(int(stem), stored.digest)
    return is_own and stem.isdecimal()
