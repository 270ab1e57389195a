"""The call about the answers to Linkerd proxies."""

from __future__ import annotations

from xds.calls.call import ApiCall, Json, ask, document, flags
from xds.linkerd import operations


def destination(authority: str, *, token: str = "") -> ApiCall[Json]:
    """What a Linkerd proxy is answered about a destination, and why."""
    return ask(operations.GET_DESTINATION, authority, query=flags(token=token), read=document)
