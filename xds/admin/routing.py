"""Routers of the API, the scope that each route needs, and the caller of a request.

Each route needs one scope of the caller's token or certificate. It follows from the method (reading: ``read``; writing
below a group: ``write:group/<group>``; any other write: ``admin``), unless the operation names another one.
So no new route is open by mistake.

The caller of a write consists of the authenticated actor, the claimed author, and the address.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from http import HTTPStatus
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote

import structlog
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute

from xds.access.authorisation import ANONYMOUS, Identity
from xds.access.caller import Caller
from xds.access.tokens import ADMIN, EVERYTHING, READ, SECRETS, Grant, write_scope
from xds.admin.answers import JSON_TYPE, YAML_TYPE
from xds.admin.operations import ANY, Operation
from xds.admin.parameters import check_known
from xds.admin.problem import RequestError

_log = structlog.get_logger(logger_name="xds.admin.routing")

E = TypeVar("E", bound=Callable[..., Any])

_BODY = "described_body"  # an attribute of the function of a route
_OPERATION = "operation"  # likewise
_MODELS = "body_models"  # likewise


# What reading a document of another form raises.
FORM_ERRORS = (LookupError, TypeError, ValueError, AttributeError)
HAS_GATHERED = "has_gathered"  # an item of the state of a request that other servers have answered
IS_WITHOUT_OTHERS = "is_without_others"  # likewise, of one that is answered as if they were silent


class AnsweringRoute(APIRoute):
    """A route that answers with what this server knows if it cannot read what others tell, as of another release."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        answer = super().get_route_handler()

        async def answer_anyway(request: Request) -> Response:
            try:
                return await answer(request)
            except FORM_ERRORS:
                if request.method != "GET" or not getattr(request.state, HAS_GATHERED, False):
                    raise
                _log.exception("servers.unreadable", path=request.url.path)
            setattr(request.state, IS_WITHOUT_OTHERS, True)
            return await answer(request)

        return answer_anyway


class ApiRouter(APIRouter):
    """A router whose routes serve operations of the table. They are named after their functions."""

    def __init__(self, tag: str, *checks: Callable[..., Any]) -> None:
        super().__init__(
            tags=[tag],
            dependencies=list(map(Depends, checks)),
            generate_unique_id_function=operation_id,
            route_class=AnsweringRoute,
        )

    def serve(self, operation: Operation, **options: Any) -> Callable[[E], E]:
        """Let the function serve an operation. `xds.admin.schemas` makes the schema of its answer, not FastAPI."""
        is_document = not operation.has_class and "response_class" not in options
        if operation.scope:
            options["openapi_extra"] = needs(operation.scope)

        def register(endpoint: E) -> E:
            setattr(endpoint, _OPERATION, operation)
            kind = dict[str, Any] if is_document else None
            self.add_api_route(operation.path, endpoint, methods=[operation.method], response_model=kind, **options)
            return endpoint

        return register


def operation_of(route: BaseRoute) -> Operation | None:
    """The operation that a route serves; None if it is none of the API."""
    return getattr(getattr(route, "endpoint", None), _OPERATION, None)


def api_router(tag: str) -> ApiRouter:
    """A router whose routes check the caller's scopes and the query's parameters.

    Its routes are complete when they are defined. FastAPI would build the routes of an included router in the first
    request: with hundreds of models that blocks the event loop for some tenths of a second.
    """
    return ApiRouter(tag, check_request)


def operation_id(route: APIRoute) -> str:
    """The name of the route's function, as generators of clients expect it."""
    return route.name


SCOPE_KEY = "x-scope"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


def needs(scope: str) -> dict[str, Any]:
    """The ``openapi_extra`` of a route whose scope does not follow from its method."""
    return {SCOPE_KEY: scope}


_TEXTS = (JSON_TYPE, YAML_TYPE)
_BYTES = {"type": "string", "format": "binary"}


def with_body(schema: Mapping[str, Any], description: str, media_types: Collection[str] = _TEXTS) -> Callable[[E], E]:
    """Describes the body of a route that reads it by itself. ``schema`` is that of JSON and YAML."""
    content = {each: {"schema": schema if each in _TEXTS else _BYTES} for each in media_types}

    def describe(endpoint: E) -> E:
        setattr(endpoint, _BODY, {"required": True, "description": description, "content": content})
        return endpoint

    return describe


def with_model(
    model: type[BaseModel],
    description: str,
    *parts: type[BaseModel],
    media_types: Collection[str] = _TEXTS,
) -> Callable[[E], E]:
    """As `with_body`, of a model, which refers to ``parts``."""
    body = with_body({"$ref": f"#/components/schemas/{model.__name__}"}, description, media_types)

    def describe(endpoint: E) -> E:
        setattr(endpoint, _MODELS, (model, *parts))
        return body(endpoint)

    return describe


def body_models(route: BaseRoute) -> tuple[type[BaseModel], ...]:
    """The models that `with_model` names, for the OpenAPI description. The first one refers to the others."""
    models: tuple[type[BaseModel], ...] = getattr(getattr(route, "endpoint", None), _MODELS, ())
    return models


def described_body(route: BaseRoute) -> dict[str, Any] | None:
    """The body that `with_body` describes, for the OpenAPI description; None without it."""
    body: dict[str, Any] | None = getattr(getattr(route, "endpoint", None), _BODY, None)
    return body


def grant_of(request: Request) -> Grant:
    """The scopes of the caller; all scopes if no tokens are configured."""
    return cast(Grant, getattr(request.state, "grant", EVERYTHING))


def identity_of(request: Request) -> Identity:
    """The authenticated identity of the caller; empty if no credentials are configured."""
    return cast(Identity, getattr(request.state, "identity", ANONYMOUS))


async def check_request(request: Request) -> None:
    """A dependency of all routes of the API. Raises ``RequestError`` (403), ``MalformedError`` (400)."""
    authorize(request)
    check_known(request)


def authorize(request: Request) -> None:
    """Raises ``RequestError`` (403) unless the caller has the scope that the route needs."""
    scope = _needed(request)
    if scope != ANY:
        demand(request, scope)


def demand(request: Request, scope: str) -> None:
    """Raises ``RequestError`` (403) that names the missing scope."""
    grant = grant_of(request)
    if not grant.allows(scope):
        kind = "the certificate" if identity_of(request).credential == b"" and grant.name else "the token"
        bearer = f"{kind} {grant.name!r}" if grant.name else kind
        challenge = f'Bearer error="insufficient_scope", scope="{_printable(scope)}"'
        detail = f"{bearer} lacks the scope {scope}"
        raise RequestError(HTTPStatus.FORBIDDEN, detail, {"WWW-Authenticate": challenge}, {"missing_scope": scope})


async def secrets_shown(
    request: Request,
    show_secrets: Annotated[
        bool, Query(description="Show secret values; needs the scope `secrets:read`. Otherwise they are `[redacted]`")
    ] = False,
) -> bool:
    """Whether secret values are shown. Raises ``RequestError`` (403)."""
    if show_secrets:
        demand(request, SECRETS)
    return show_secrets


ShowSecrets = Annotated[bool, Depends(secrets_shown)]


def _needed(request: Request) -> str:
    route = request.scope["route"]
    declared = (getattr(route, "openapi_extra", None) or {}).get(SCOPE_KEY)
    if declared is not None:
        return str(declared)
    if request.method in _READING:
        return READ
    group = request.path_params.get("group")
    return write_scope(unquote(group)) if group is not None else ADMIN


def _printable(text: str) -> str:
    return "".join(char if " " <= char <= "~" and char not in '"\\' else "?" for char in text)


AUTHOR_LIMIT = 200  # characters


async def caller(
    request: Request,
    author: Annotated[
        str,
        Query(
            max_length=AUTHOR_LIMIT,
            description="Who makes the change, as the client claims; the history has it beside the authenticated actor",
        ),
    ] = "",
) -> Caller:
    """The caller of a route, as a dependency."""
    return Caller(grant_of(request).name, author, peer_of(request))


def peer_of(request: Request) -> str:
    """The address that a request came from."""
    client = request.client
    if client is None:
        return ""
    host = f"[{client.host}]" if ":" in client.host else client.host
    return f"{host}:{client.port}"


Calling = Annotated[Caller, Depends(caller)]
