"""The methods of the Linkerd API as a table: names as in linkerd2-proxy-api."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkerdMethod:
    """A method of the Linkerd API. ``begin`` is the method of `Conversations` for it.

    ``is_unary``: a call ends after its first answer. ``is_of_2018``: clients of 2018, which need periodic updates.
    """

    service: str
    method: str
    begin: str
    is_unary: bool = False
    is_of_2018: bool = False


LABEL = "Linkerd"
_PROXY = "io.linkerd.proxy"
METHODS = (
    LinkerdMethod(f"{_PROXY}.destination.Destination", "Get", "get"),
    LinkerdMethod(f"{_PROXY}.destination.Destination", "GetProfile", "profile"),
    LinkerdMethod("conduit.proxy.destination.Destination", "Get", "get_2018", is_of_2018=True),
    LinkerdMethod(f"{_PROXY}.outbound.OutboundPolicies", "Watch", "outbound"),
    LinkerdMethod(f"{_PROXY}.outbound.OutboundPolicies", "Get", "outbound", is_unary=True),
    LinkerdMethod(f"{_PROXY}.inbound.InboundServerPolicies", "WatchPort", "inbound"),
    LinkerdMethod(f"{_PROXY}.inbound.InboundServerPolicies", "GetPort", "inbound", is_unary=True),
)
