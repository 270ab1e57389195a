"""What one stream may ask for (DESIGN 5), and the checks that happen before anything changes."""

from __future__ import annotations

from dataclasses import dataclass

from xds.model.errors import LimitError, RemoteProtocolError, StatusCode
from xds.protocol.events import Request, SotwRequest
from xds.wire.node import NODE_BYTES

NODE_ID_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one stream. ``offer_timeout_s``: how long newer content waits for the answer to an older response."""

    names_per_request: int = 20_000
    names_per_subscription: int = 100_000
    types_per_stream: int = 64
    offer_timeout_s: float = 5.0
    node_bytes: int = NODE_BYTES


def names_in(request: Request) -> int:
    """How many names a request carries, of whatever sort."""
    if isinstance(request, SotwRequest):
        return len(request.names)
    return len(request.subscribe) + len(request.unsubscribe) + len(request.initial_versions)


def check_names(request: Request, held: int, limits: Limits) -> None:
    """Raise ``RemoteProtocolError`` for a request with too many names; ``held`` is the subscription's size so far."""
    if isinstance(request, SotwRequest):
        asked = len(request.names)
    else:
        asked = len(request.subscribe) + len(request.unsubscribe)
        if held + len(request.subscribe) > limits.names_per_subscription:
            raise LimitError(
                "names_per_subscription", f"more than {limits.names_per_subscription} names in one subscription"
            )
    if asked > limits.names_per_request:
        message = f"{asked} names in one request; at most {limits.names_per_request} are accepted"
        raise LimitError("names_per_request", message)


def check_node_id(node_id: str) -> None:
    """Raise ``RemoteProtocolError`` for a node without an id (rule 3), or with one too long to be kept and shown."""
    if not node_id:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "the (first) request must carry a node with an id")
    if len(node_id) > NODE_ID_LIMIT:
        message = f"a node id of {len(node_id)} characters; at most {NODE_ID_LIMIT} are accepted"
        raise LimitError("node_id", message)


def check_type(requested: str, served: str) -> str:
    """The type URL a request is about, on a stream of the service type ``served`` (empty on ADS).

    Rule 4: "On a per-type stream an absent type_url means the service's type; on ADS an absent one is an error".
    """
    if not requested and not served:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "type_url is required on an aggregated stream")
    if requested and served and requested != served:
        message = f"this service serves {served}, not {requested[:200]}"
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, message)
    return requested or served
