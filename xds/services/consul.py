"""What all paths of Consul's API for services share: permissions to register, and the selection of instances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import time
from typing import Any, ClassVar, NoReturn

from fastapi import Request
from fastapi.responses import Response

from xds.access.caller import Caller
from xds.access.tokens import ADMIN, REGISTER_ALL, register_scope
from xds.admin.answers import JSON_TYPE
from xds.admin.bodies import parse_one
from xds.admin.dependencies import Dependencies
from xds.admin.routing import demand, grant_of, peer_of
from xds.consul.http import check_datacenter, findings_text, refuse
from xds.filter.expression import FilterError
from xds.filter.filter import Filter, compile_filter
from xds.filter.values import FixedRecord
from xds.model.errors import ValidationError
from xds.model.ip_address import is_ip_address
from xds.services.core.registration_edits import Registrant
from xds.services.registration import Permit, Registering
from xds.services.served import served
from xds.services.view import ServiceView
from xds.tasks.threads import run_for_caller

BODY_BYTES = 256 << 10
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def bad_request(detail: str) -> NoReturn:
    """Refuse the request with 400 and a text in the form of Consul."""
    refuse(HTTPStatus.BAD_REQUEST, f"Bad request: {detail}")


def refuse_registration(error: ValidationError) -> NoReturn:
    """Refuse a registration with all findings."""
    bad_request(findings_text(error.violations))


async def parse_json(body: bytes, what: str) -> Any:
    """The JSON of a body, whatever its content type. Raises ``RequestError``."""
    try:
        return await parse_one(body, JSON_TYPE, what, BODY_BYTES)
    except ValidationError as error:
        bad_request(f"Request decode failed: {findings_text(error.violations)}")


def empty_answer() -> Response:
    """200 without a body: the answer of Consul's agent to a write."""
    return Response(status_code=HTTPStatus.OK)


# Permissions


def registering(request: Request, caller: Caller | None = None) -> Registering:
    """The request to register something; ``caller`` names an author, which Consul's requests do not."""
    grant, client = grant_of(request), request.client
    host = (client.host if client is not None else "").partition("%")[0]
    by = Registrant(grant.name, host if is_ip_address(host) else "", int(time()))
    return Registering(by, caller or Caller(grant.name, "", peer_of(request)), _permit_of(request))


def _permit_of(request: Request) -> Permit:
    """A check of what the caller may register. It raises ``RequestError`` (403) for a service that it may not.

    What is about no service, such as a node, needs the right to register all services.
    """

    def permit(services: Iterable[str]) -> None:
        names = sorted(services)
        for service in names:
            demand(request, register_scope(service))
        if not names and REGISTER_ALL not in grant_of(request).scopes:
            demand(request, ADMIN)

    return permit


# Selection


def own_datacenter(deps: Dependencies) -> str:
    """The name of the datacenter of this server."""
    return served(deps).datacenter


def requested_datacenter(request: Request, deps: Dependencies) -> str:
    """The datacenter of the request. Raises ``RequestError`` for one that has no instances."""
    return check_datacenter(request, own_datacenter(deps), served(deps).view.datacenters())


def flag(request: Request, name: str) -> bool:
    """A boolean parameter; true without a value. Raises ``RequestError``."""
    text = request.query_params.get(name)
    if text is None or text in _FALSE:
        return False
    if text not in _TRUE and text:
        bad_request(f"Invalid value for ?{name}")
    return True


async def filter_of(request: Request, shape: FixedRecord) -> Filter:
    """The filter of a request, for items of a shape. Raises ``RequestError``."""
    try:
        text = request.query_params.get("filter", "")
        compiled = await run_for_caller(compile_filter, text) if text else compile_filter("")
        compiled.check(shape)
    except FilterError as error:
        refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"Failed to create boolean expression evaluator: {error}")
    return compiled


@dataclass(frozen=True, slots=True)
class Selection:
    """The requested instances: in ``datacenter``, with all ``tags``, on nodes with all ``node_meta``.

    ``tags`` are in lower case: Consul ignores their case.
    """

    datacenter: str
    own_datacenter: str
    tags: frozenset[str]
    node_meta: Mapping[str, str]

    @classmethod
    def of(cls, request: Request, deps: Dependencies, *, by_tags: bool) -> Selection:
        """The selection of a request. Without ``by_tags`` its tags are ignored. Raises ``RequestError``."""
        pairs = (text.partition(":") for text in request.query_params.getlist("node-meta"))
        tags = frozenset(tag.lower() for tag in request.query_params.getlist("tag")) if by_tags else frozenset()
        meta = {key: value for key, _, value in pairs}
        return cls(requested_datacenter(request, deps), own_datacenter(deps), tags, meta)

    @property
    def is_everything(self) -> bool:
        """Whether it is all instances in the datacenter of this server."""
        return not (self.tags or self.node_meta) and self.datacenter == self.own_datacenter

    def has(self, tags: Collection[str], node_meta: Mapping[str, str], datacenter: str) -> bool:
        """Whether an instance with these properties is selected."""
        return (
            (datacenter or self.own_datacenter) == self.datacenter
            and self.tags.issubset(map(str.lower, tags))
            and all(node_meta.get(key) == value for key, value in self.node_meta.items())
        )


@dataclass(frozen=True, slots=True)
class WatchedServices:
    """A service, or all services, as the data that a blocking query waits for."""

    view: ServiceView
    subject: str
    limit_name: ClassVar[str] = "service_waiters"

    @property
    def revision(self) -> int:
        """The highest revision of all services."""
        return self.view.revision

    async def wait(self, after: int, current: Callable[[], int], wait_s: float) -> None:
        """As `ServiceView.wait`."""
        await self.view.wait(self.subject, after, current, wait_s)
