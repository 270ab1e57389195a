"""An Envoy-compatible xDS management server.

``xds.Server`` runs it within a program, ``xds.Client`` and ``xds.AsyncClient`` push to one that runs elsewhere
(docs/python.md). They are imported when they are asked for: ``import xds`` alone costs nothing.

The wheel xds-protos has an empty module of this name. Nothing of this distribution depends on this one, so it works
with either of them; ``xds.embed`` and ``xds.client`` are the same things under names that are always there.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from xds.version import __version__

if TYPE_CHECKING:
    from xds.client import AsyncClient, Client
    from xds.embed import Server

# Where xds-protos lies in another directory of the path, its packages (xds.core, xds.type) are found as well.
__path__ = extend_path(__path__, __name__)

__all__ = ["AsyncClient", "Client", "Server", "__version__"]

_PLACES = {"Server": "xds.embed", "Client": "xds.client", "AsyncClient": "xds.client"}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
