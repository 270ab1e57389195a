"""One request, one answer, no stream: what unary Fetch and REST polling share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Node
from xds.protocol.cache import SnapshotCache
from xds.protocol.fetch import Fetched, fetch
from xds.protocol.requests import (
    SotwRequest,
    StreamLimits,
    check_node_id,
    check_type,
)
from xds.protocol.sotw import SOTW


def answer(
    cache: SnapshotCache,
    limits: StreamLimits,
    node: Node,
    request: SotwRequest,
    type_url: str,
    authorize: Callable[[Node, str], None],
    api: str = "",
) -> Fetched:
    """What the node is served of ``type_url`` now. ``authorize`` raises where it may not follow its group.

    Raises ``RemoteProtocolError``: NOT_FOUND while no group matches the node, INVALID_ARGUMENT for a request without
    node id or for another type, RESOURCE_EXHAUSTED for too many names.
    """
    check_type(request.type_url, type_url)
    SOTW.check_names(request, 0, limits)
    check_node_id(node.id)
    view = cache.resolve(node, api)
    authorize(node, view.group if view is not None else "")
    if view is None:
        raise RemoteProtocolError(StatusCode.NOT_FOUND, "no snapshot for this node")
    return fetch(view, replace(request, type_url=type_url))
