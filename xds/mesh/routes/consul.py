"""Consul's API for config entries and discovery chains, and what clients ask first, as clients of Consul expect it.

Its paths are not in the OpenAPI description: the documentation of Consul describes them. Differences are in
docs/discovery-chain.md#consuls-own-paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NoReturn

from fastapi import Request
from fastapi.responses import Response

from xds.access.caller import Caller
from xds.access.tokens import READ
from xds.admin.answers import JSON_TYPE
from xds.admin.bodies import Body, parse_one
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.routing import Calling, needs
from xds.codec.findings import normalized_name
from xds.consul.blocking_queries import wait_for_change
from xds.consul.http import answer_read, answer_write, check_cas, check_datacenter, refuse, refuse_findings
from xds.consul.quantities import parse_duration
from xds.consul.routing import consul_router
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.chain import ChainError
from xds.mesh.core.chain.chain_json import response_json
from xds.mesh.core.chain.request import GATEWAY_MODES, Overrides
from xds.mesh.core.entries.entry import KINDS, OTHER_KINDS, ConfigEntry, read_entry
from xds.mesh.entry_records import DeleteEntry, EntryConflictError, PutEntry
from xds.mesh.served import served
from xds.model.errors import ValidationError
from xds.model.ip_address import address_text
from xds.push.request import PushOptions
from xds.services.consul import own_datacenter
from xds.services.core.registered_instance import AGENT_NODE
from xds.store.base import Meta
from xds.tasks.threads import run_for_caller

ENTRY_BODY_BYTES = 1 << 20
OVERRIDES_BODY_BYTES = 64 << 10
NAME_LIMIT = 1024  # characters of a service's name

router = consul_router()


def _entries(deps: Dependencies, request: Request) -> EntryTable:
    entries = served(deps).entries
    check_datacenter(request, entries.index.context.datacenter)
    return entries


# Config entries


@router.put("/config")
async def put_config(deps: Deps, request: Request, body: Body, by: Calling) -> Response:
    """Write one entry, as JSON whatever the content type. Answers ``true``, or ``false`` if ``cas`` does not match."""
    entries, cas = _entries(deps, request), check_cas(request)
    try:
        entry = await _entry(body)
        done = await _put(entries, entry, cas, by)
    except ValidationError as error:
        refuse_findings(request, error)
    return answer_write(request, done)


@router.delete("/config/{kind}")
@router.delete("/config/{kind}/{name:path}")
async def delete_config(deps: Deps, request: Request, by: Calling, kind: str, name: str = "") -> Response:
    """Delete an entry, if there is one. Answers ``{}``; with ``cas``, ``true`` or ``false``."""
    entries, cas = _entries(deps, request), check_cas(request)
    if not name:
        refuse(HTTPStatus.NOT_FOUND, "Must provide both a kind and name to delete")
    _check_kind(kind, HTTPStatus.BAD_REQUEST)
    try:
        await entries.apply([DeleteEntry(kind, name, cas, must_exist=False)], _options(by))
        done = True
    except EntryConflictError:
        done = entries.record(kind, name) is None
    except ValidationError as error:
        refuse_findings(request, error)
    return answer_write(request, {} if cas is None else done)


@router.get("/config/{kind}/{name:path}")
async def get_config(deps: Deps, request: Request, kind: str, name: str) -> Response:
    """One entry with its revisions. A blocking query waits for an entry that does not exist yet."""
    entries = _entries(deps, request)
    _check_kind(kind)
    index = await wait_for_change(request, deps, entries, lambda: entries.entry_revision(kind, name))
    record = entries.record(kind, name)
    if record is None:
        refuse(HTTPStatus.NOT_FOUND, f"Config entry not found for {_quoted(kind)} / {_quoted(name)}", index)
    return await answer_read(request, record.document, index)


@router.get("/config/")
@router.get("/config/{kind}")
async def list_config(deps: Deps, request: Request, kind: str = "") -> Response:
    """All entries of a kind, by name; without a kind, all entries."""
    entries = _entries(deps, request)
    if kind:
        _check_kind(kind)
    if request.query_params.get("filter"):
        refuse(HTTPStatus.BAD_REQUEST, "Filters of config entries are not supported")
    index = await wait_for_change(
        request, deps, entries, lambda: entries.kind_revision(kind) if kind else entries.revision
    )
    records = entries.records(kind or None)
    return await answer_read(request, lambda: [record.document() for record in records], index, len(records))


async def _entry(body: bytes) -> ConfigEntry:
    value = await parse_one(body, JSON_TYPE, "a config entry", ENTRY_BODY_BYTES)
    read = await run_for_caller(read_entry, value)
    return read.entries[0]


async def _put(entries: EntryTable, entry: ConfigEntry, cas: int | None, by: Caller) -> bool:
    """Whether the entry has the written content now. As in Consul, ``cas`` does not matter if it had it before."""
    try:
        await entries.apply([PutEntry(entry, cas)], _options(by))
    except EntryConflictError:
        stored = entries.record(entry.kind, entry.name)
        return stored is not None and stored.entry == entry
    return True


def _options(by: Caller) -> PushOptions:
    return PushOptions(meta=Meta(author=by.author, actor=by.actor), peer=by.peer)


def _check_kind(kind: str, status: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
    """Raises ``RequestError`` for an unsupported kind, with ``status`` for a kind that Consul does not know."""
    if kind in OTHER_KINDS:
        refuse(HTTPStatus.BAD_REQUEST, f"config entries of the kind {kind} are not supported")
    if kind not in KINDS:
        refuse(status, f"invalid config entry kind: {kind[:80]}")


# Chains


@router.get("/discovery-chain/{service:path}")
async def get_chain(deps: Deps, request: Request, service: str) -> Response:
    """The chain of a service, compiled for the datacenter ``compile-dc``."""
    return await _chain(deps, request, service, Overrides())


@router.post("/discovery-chain/{service:path}", openapi_extra=needs(READ))
async def post_chain(deps: Deps, request: Request, service: str, body: Body) -> Response:
    """The chain of a service, compiled with the overrides in the body."""
    try:
        value = await parse_one(body, JSON_TYPE, "overrides", OVERRIDES_BODY_BYTES)
    except ValidationError as error:
        refuse(HTTPStatus.BAD_REQUEST, f"Request decoding failed: {error}")
    return await _chain(deps, request, service, _overrides(value))


async def _chain(deps: Dependencies, request: Request, service: str, overrides: Overrides) -> Response:
    entries = _entries(deps, request)
    if not service:
        refuse(HTTPStatus.BAD_REQUEST, "Missing chain name")
    datacenter = request.query_params.get("compile-dc", "")
    if max(len(service), len(datacenter)) > NAME_LIMIT:
        refuse(HTTPStatus.BAD_REQUEST, f"names have at most {NAME_LIMIT} characters")
    compiled = (service, overrides if overrides != Overrides() else None, datacenter)
    try:
        index = await wait_for_change(
            request, deps, entries, lambda: entries.chain_revision(*compiled), lambda: entries.chain(*compiled)
        )
        chain = entries.chain(*compiled)
    except ChainError as error:
        refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
    return await answer_read(request, lambda: response_json(chain), index, len(chain.nodes) + len(chain.targets))


def _overrides(value: object) -> Overrides:
    """The overrides in the body of a POST. Raises ``RequestError``."""
    given = _fields(value, "the body", {"overridemeshgateway", "overrideprotocol", "overrideconnecttimeout"})
    gateway = _fields(given.get("overridemeshgateway") or {}, "OverrideMeshGateway", {"mode"})
    mode = gateway.get("mode") or ""
    if mode not in GATEWAY_MODES:
        refuse(HTTPStatus.BAD_REQUEST, "Invalid OverrideMeshGateway.Mode parameter")
    protocol = given.get("overrideprotocol") or ""
    if not isinstance(protocol, str):
        _refuse_body("OverrideProtocol is a string")
    return Overrides(protocol, _nanoseconds(given.get("overrideconnecttimeout") or 0), str(mode))


def _fields(value: object, place: str, known: set[str]) -> Mapping[str, Any]:
    """The fields of an object by normalized name (lower case, no underscores): Consul accepts any spelling."""
    if not isinstance(value, dict):
        _refuse_body(f"{place} is an object")
    given = {normalized_name(name): field for name, field in value.items()}
    unknown = sorted(name for name in value if normalized_name(name) not in known)
    if unknown or len(given) < len(value):
        _refuse_body(f"{place} has unknown or repeated fields: {', '.join(unknown or sorted(value))[:200]}")
    return given


def _nanoseconds(value: object) -> int:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            _refuse_body(f"OverrideConnectTimeout is not a duration: {_quoted(value)}")
    if type(value) is not int or abs(value) >= 1 << 63:
        _refuse_body("OverrideConnectTimeout is a duration, or an integer of nanoseconds")
    return value


def _refuse_body(detail: str) -> NoReturn:
    refuse(HTTPStatus.BAD_REQUEST, f"Request decoding failed: {detail}")


def _quoted(text: str) -> str:
    return '"' + text[:200].replace('"', '\\"') + '"'


# What clients ask first: which agent answers, and whether there is a leader. The server is its own agent and its own
# leader. Answers have the fields that clients read (docs/services.md#consuls-own-paths).


# Clients choose what they ask for by the release. The paths are compared with this one.
CONSUL_RELEASE = "1.12.9"
_ALIVE = 1  # Serf's status of a member


@router.get("/agent/self")
async def get_self(deps: Deps, request: Request) -> Response:
    """The agent: its name, datacenter and release. Consul ignores the datacenter of this request."""
    datacenter, (host, port) = own_datacenter(deps), deps.options.http_address()
    agent = {
        "Config": {
            "Datacenter": datacenter,
            "PrimaryDatacenter": datacenter,
            "NodeName": AGENT_NODE,
            "NodeID": "",
            "Revision": "",
            "Server": True,
            "Version": CONSUL_RELEASE,
        },
        "Member": {
            "Name": AGENT_NODE,
            "Addr": host,
            "Port": port,
            "Tags": {"build": f"{CONSUL_RELEASE}:", "dc": datacenter, "role": "consul", "segment": ""},
            "Status": _ALIVE,
        },
        "Stats": {
            "build": {"version": CONSUL_RELEASE},
            "consul": {"leader": "true", "leader_addr": _address(deps), "server": "true"},
        },
        "Meta": {},
    }
    return answer_write(request, agent)


@router.get("/status/leader")
async def get_leader(deps: Deps, request: Request) -> Response:
    """The address of the leader: that of this server's HTTP port."""
    check_datacenter(request, own_datacenter(deps))
    return answer_write(request, _address(deps))


@router.get("/status/peers")
async def list_peers(deps: Deps, request: Request) -> Response:
    """The addresses of all servers of the datacenter: that of this one."""
    check_datacenter(request, own_datacenter(deps))
    return answer_write(request, [_address(deps)])


def _address(deps: Dependencies) -> str:
    return address_text(*deps.options.http_address())
