"""Clients of plain HTTP."""

from __future__ import annotations

from typing import Any

import httpx


def plain_client(**arguments: Any) -> httpx.Client:
    """A client without TLS and without proxies. Loading the trusted authorities would take 50 ms."""
    return httpx.Client(verify=False, trust_env=False, **arguments)
