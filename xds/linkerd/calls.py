"""The call about the answers to Linkerd proxies."""

from __future__ import annotations

from xds.calls.call import ApiCall, Json, document, flags, place


def destination(authority: str, *, token: str = "") -> ApiCall[Json]:
    """What a Linkerd proxy is answered about a destination, and why."""
    return ApiCall("GET", place("destinations", authority), document, flags(token=token))
