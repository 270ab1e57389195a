"""The call about the answers to Linkerd proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xds.calls.call import ApiCall, ask, flags
from xds.linkerd import operations

if TYPE_CHECKING:
    from xds.linkerd.models import DestinationAnswer


def destination(authority: str, *, token: str = "") -> ApiCall[DestinationAnswer]:
    """What a Linkerd proxy is answered about a destination, and why."""
    return ask(operations.GET_DESTINATION, authority, query=flags(token=token))
