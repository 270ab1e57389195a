"""Settings of a Consul catalog as a source (docs/services.md#consul)."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from xds.control.source_settings import Secret, SourceSettings

CONSUL_LIMIT = 200  # connections of one address that Consul accepts (`limits.http_max_conns_per_client`)


class ConsulSettings(SourceSettings):
    """A Consul: the instances of the services that something here uses, of one datacenter.

    Without ``datacenter`` it is that of the agent. The token may stand in a file, which is read again when it changes.
    With more services than ``connections`` all are asked in rotation. ``wait_s`` is the wait of a blocking query;
    ``every_s`` is the least time between two queries of one service. With ``stale`` any server may answer.
    ``region_meta`` and ``zone_meta`` are keys of the metadata of services and nodes that have the locality.
    """

    kind: Literal["consul"]
    address: str = "http://127.0.0.1:8500"
    datacenter: str | None = Field(None, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    token: Secret | None = None
    token_path: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    connections: int = Field(100, ge=2, le=CONSUL_LIMIT)
    queries_per_s: float = Field(100.0, gt=0, le=10_000)
    every_s: float = Field(0.25, ge=0.01, le=60)
    wait_s: float = Field(15.0, ge=1, le=600)
    stale: bool = False
    region_meta: str | None = Field(None, max_length=128)
    zone_meta: str | None = Field(None, max_length=128)

    @field_validator("address")
    @classmethod
    def _is_url(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
            raise ValueError("expected http://HOST:PORT or https://HOST:PORT")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _fits(self) -> ConsulSettings:
        if self.token is not None and self.token_path is not None:
            raise ValueError("either token or token_path")
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together")
        if not self.address.startswith("https") and (self.ca or self.certificate):
            raise ValueError("ca and certificate need an https address")
        return self

    def tls_context(self) -> ssl.SSLContext | None:
        """The context of an https address; None otherwise. Raises ``OSError`` for files that cannot be read."""
        if not self.address.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.private_key)
        return context
