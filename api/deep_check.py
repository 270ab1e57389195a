"""Validation by a real Envoy, where the operator has set one up."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from fastapi import Request

from api.grants import demand
from api.problem import RequestError
from api.services import Services
from xds.control.envoy_check import deep_check
from xds.control.tokens import ADMIN
from xds.model.errors import Violation
from xds.model.resource import Resource


def envoy_binary(here: Services, request: Request) -> Path:
    """The Envoy to ask. Raises ``RequestError`` without one (400) and for who may not (403).

    Envoy opens the files that a configuration names, log files for writing: not everybody's to do on this machine.
    """
    demand(request, ADMIN)
    if here.options.envoy is None:
        raise RequestError(HTTPStatus.BAD_REQUEST, "this server has no Envoy to ask: codec.envoy is not set")
    return here.options.envoy


async def ask_envoy(resources: Sequence[Resource], envoy: Path) -> list[Violation]:
    """What Envoy has against resources. Raises ``RequestError`` (503) when it cannot be started."""
    try:
        return await deep_check(resources, envoy)
    except OSError as error:
        detail = f"the Envoy of codec.envoy cannot be started: {error.strerror}"
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, detail) from None
