"""Routers of the API, the scope that each route needs, and the caller of a request.

Each route needs one scope of the caller's token or certificate. It follows from the method (reading: ``read``; writing
below a group: ``write:group/<group>``; any other write: ``admin``), unless the route has ``openapi_extra=needs(...)``.
So no new route is open by mistake.

The caller of a write consists of the authenticated actor, the claimed author, and the address.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute

from xds.access.authorisation import ANONYMOUS, Identity
from xds.access.caller import Caller
from xds.access.tokens import ADMIN, EVERYTHING, READ, SECRETS, Grant, write_scope
from xds.admin.answers import JSON_TYPE, YAML_TYPE
from xds.admin.parameters import check_consul_parameters, check_parameters
from xds.admin.problem import RequestError
from xds.admin.schemas import is_answer

E = TypeVar("E", bound=Callable[..., Any])

API_PREFIX = "/api/v1"
CONSUL_API_PREFIX = "/v1"


_BODY = "described_body"  # an attribute of the function of a route
_ANSWER = "described_answer"  # likewise
_MODELS = "body_models"  # likewise


class _ApiRouter(APIRouter):
    """Keeps the class of an answer for the description: `xds.admin.schemas` makes its schema, not FastAPI."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route."""
        if is_answer(kind := options.get("response_model")):
            setattr(endpoint, _ANSWER, kind)
            options["response_model"] = None
        super().add_api_route(path, endpoint, **options)


def described_answer(route: BaseRoute) -> Any:
    """The class of the answer of a route; None if it has none."""
    return getattr(getattr(route, "endpoint", None), _ANSWER, None)


def api_router(tag: str, prefix: str = "") -> APIRouter:
    """A router whose routes lie under the API's prefix and check the caller's scopes and the query's parameters.

    Its routes are complete when they are defined. FastAPI would build the routes of an included router in the first
    request: with hundreds of models that blocks the event loop for some tenths of a second.
    """
    return _ApiRouter(
        prefix=f"{API_PREFIX}{prefix}",
        tags=[tag],
        dependencies=[Depends(authorize), Depends(check_parameters)],
        generate_unique_id_function=operation_id,
    )


def consul_router(prefix: str = "") -> APIRouter:
    """A router of Consul's paths, which the description leaves out. They check scopes and Consul's parameters."""
    checks = [Depends(authorize), Depends(check_consul_parameters)]
    return APIRouter(prefix=f"{CONSUL_API_PREFIX}{prefix}", dependencies=checks, include_in_schema=False)


def operation_id(route: APIRoute) -> str:
    """The name of the route's function, as generators of clients expect it."""
    return route.name


SCOPE_KEY = "x-scope"
ANY = "any"  # a valid credential is enough; the route itself checks scopes
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


def needs(scope: str) -> dict[str, Any]:
    """The ``openapi_extra`` of a route whose scope does not follow from its method."""
    return {SCOPE_KEY: scope}


def with_body(
    schema: Mapping[str, Any], description: str, media_types: Collection[str] = (JSON_TYPE, YAML_TYPE)
) -> Callable[[E], E]:
    """Describes the body of a route of a feature that reads it by itself."""
    content = {media_type: {"schema": schema} for media_type in media_types}

    def describe(endpoint: E) -> E:
        setattr(endpoint, _BODY, {"required": True, "description": description, "content": content})
        return endpoint

    return describe


def with_model(
    model: type[BaseModel],
    description: str,
    *parts: type[BaseModel],
    media_types: Collection[str] = (JSON_TYPE, YAML_TYPE),
) -> Callable[[E], E]:
    """Describes the body of a route of a feature that reads it by itself: a model, which refers to ``parts``."""
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


async def authorize(request: Request) -> None:
    """A dependency of all routes of the API. Raises ``RequestError`` (403)."""
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
