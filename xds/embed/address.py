"""The address that a listener of an embedded server is bound to."""

from __future__ import annotations

from typing import NamedTuple

from xds.app.ports import place


class ServerAddress(NamedTuple):
    """Host and port. As text it is ``HOST:PORT``, as gRPC channels, bootstraps and ``Server(grpc=...)`` take it."""

    host: str
    port: int

    def __str__(self) -> str:
        """``HOST:PORT``, an IPv6 host in brackets."""
        return place(self.host, self.port)
