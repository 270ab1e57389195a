"""Clients of plain HTTP."""

from __future__ import annotations

from typing import Any

import httpx


def plain_client(**arguments: Any) -> httpx.Client:
    """A client that goes where it is told, without TLS: it does not spend 50 ms on the authorities it would trust."""
    return httpx.Client(verify=False, trust_env=False, **arguments)
