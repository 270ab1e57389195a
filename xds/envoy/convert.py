"""Converts an Envoy bootstrap with static resources to a snapshot and a bootstrap that uses this server.

Works on plain JSON values; unknown parts stay unchanged. Resources that the bootstrap itself needs, such as a cluster
for tracing or another management server, stay static. Optionally, endpoints and route configurations that are inline in
clusters and listeners become separate resources (EDS, RDS).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xds.codec import schema
from xds.codec.findings import Findings
from xds.codec.foreign_document import BOOTSTRAP, foreign_violation, is_bootstrap, is_config_dump
from xds.codec.naming import TYPE_KEY
from xds.codec.parse import MessageParser
from xds.codec.resources import decode_resource
from xds.codec.validate import check_constraints
from xds.codec.walk import field_value, json_key, typed_values
from xds.envoy.bootstrap import XDS_CLUSTER, BootstrapMode, BootstrapOptions
from xds.envoy.bootstrap import bootstrap as connecting_bootstrap
from xds.envoy.config_dump import bootstrap_of_dump
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET

Json = dict[str, Any]
Kinds = dict[str, list[Json]]

DEFAULT_OPTIONS = BootstrapOptions("envoy-1", "default", "127.0.0.1", 18000)
_SDS_CONFIG = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"
_TYPES = {"clusters": CLUSTER, "secrets": SECRET, "listeners": LISTENER}
_NOTES_LIMIT = 100


@dataclass(frozen=True, slots=True)
class ConvertedBootstrap:
    """``snapshot`` is to be pushed, ``bootstrap`` is for the proxy, ``notes`` are remarks for the operator.

    ``errors`` are why Envoy would reject the bootstrap, or this server the snapshot. Their pointers point into the
    converted document, or into a resource of the snapshot if they name one.
    """

    snapshot: Json
    bootstrap: Json
    notes: tuple[str, ...] = ()
    errors: tuple[Violation, ...] = ()


def convert(
    bootstrap: Mapping[str, Any], *, options: BootstrapOptions = DEFAULT_OPTIONS, split: bool = False
) -> ConvertedBootstrap:
    """Move the static resources of an Envoy bootstrap to a snapshot.

    ``options`` have the address of the server, and the node for a bootstrap without one. With ``split``, the endpoints
    of static clusters and inline route configurations become separate resources (EDS, RDS); the proxy behaves the same.
    A config dump (the response of Envoy's ``/config_dump``) is converted too, with the resources that the proxy had
    from its other server. Raises ``ValidationError`` for any other document.
    """
    try:
        document = copy.deepcopy(dict(bootstrap))
        notes: list[str] = []
        dumped: list[Json] = []
        if is_config_dump(document):
            document, dumped = bootstrap_of_dump(document, notes)
            errors: tuple[Violation, ...] = ()
        else:
            _check(document)
            errors = tuple(_bootstrap_errors(document))
        return _Converter(document, options, notes, errors=errors, dumped=dumped).convert(split)
    except RecursionError:
        raise MalformedError([Violation("too_deep", "nested too deeply")]) from None


def _check(document: Json) -> None:
    if "resources" in document:
        raise _wrong("this is a snapshot already, not a bootstrap", "/resources")
    if not is_bootstrap(document):
        raise _no_bootstrap(document)
    for name in ("static_resources", "dynamic_resources", "node"):
        key = json_key(document, name)
        if document.get(key) is None:
            document.pop(key, None)
        elif not isinstance(document[key], dict):
            raise _wrong("expected an object", f"/{key}")
    static = field_value(document, "static_resources") or {}
    for kind in _TYPES:
        for index, one in enumerate(_listed(static.get(kind))):
            if not isinstance(one, dict) or not isinstance(one.get("name", ""), str | None):
                raise _wrong("expected an object with a name", f"/static_resources/{kind}/{index}")


def _no_bootstrap(document: Json) -> ValidationError:
    foreign = foreign_violation(document)
    if foreign is None:
        detail = "this is not an Envoy bootstrap: it has no static_resources, dynamic_resources, node or admin"
        foreign = Violation("wrong_document", detail, hint="convert reads a bootstrap, or what /config_dump answers")
    return ValidationError([foreign])


def _bootstrap_errors(document: Json) -> list[Violation]:
    """All reasons why Envoy would reject a bootstrap, with their places."""
    findings = Findings()
    message = schema.require(BOOTSTRAP)()
    fields = {key: value for key, value in document.items() if key != TYPE_KEY}
    MessageParser(findings).read(message, fields)
    check_constraints(message, findings, is_partial=bool(findings))
    return [replace(one, resource="") for one in findings.violations]


def _wrong(detail: str, pointer: str) -> ValidationError:
    return ValidationError([Violation("wrong_type", detail, pointer=pointer)])


@dataclass(slots=True)
class _Converter:
    """``pushed`` goes into the snapshot, ``kept`` stays in the bootstrap."""

    document: Json
    options: BootstrapOptions
    notes: list[str] = field(default_factory=list)
    source: Json = field(default_factory=dict)
    pushed: Kinds = field(default_factory=dict)
    kept: Kinds = field(default_factory=dict)
    errors: tuple[Violation, ...] = ()
    dumped: list[Json] = field(default_factory=list)  # resources of other kinds from a config dump
    has_other_server: bool = False

    def convert(self, split: bool) -> ConvertedBootstrap:
        """The converted bootstrap. With ``split``, endpoints and routes become separate resources."""
        static = field_value(self.document, "static_resources") or {}
        self.pushed = {kind: _listed(static.get(kind)) for kind in _TYPES}
        self.kept = {kind: [] for kind in _TYPES}
        if not any(self.pushed.values()):
            self.notes.append("this bootstrap has no static resources, so there is nothing to push")
        server = self._connect()
        self._keep_api_listeners()
        self._keep_clusters()
        self._name_listeners()
        self._discover_secrets()
        self._put_static(server)
        resources = [{"@type": _TYPES[kind], **one} for kind in _TYPES for one in self.pushed[kind]]
        if split:
            resources += [*split_endpoints(resources, self.source, self.notes)]
            resources += [*split_routes(resources, self.source)]
        resources += self._with_this_source(self.dumped)
        self._note_files(resources)
        errors = self.errors or tuple(_push_errors(resources))
        return ConvertedBootstrap({"resources": resources}, self.document, tuple(self.notes[:_NOTES_LIMIT]), errors)

    # The connection to the server

    def _connect(self) -> Json:
        """Add the configuration of this server to the bootstrap. Returns its cluster."""
        dynamic = self.document.setdefault(json_key(self.document, "dynamic_resources"), {})
        has_ads = field_value(dynamic, "ads_config") is not None
        if has_ads:
            self.notes.append("ads_config uses another server and is kept; this server is used on separate streams")
        names = {one.get("name") for one in self.pushed["clusters"]}
        options = replace(self.options, mode=BootstrapMode.SPLIT_DELTA) if has_ads else self.options
        connecting = _renamed(connecting_bootstrap(options), free_name(XDS_CLUSTER, names))
        self.source = connecting["dynamic_resources"]["cds_config"]
        if "ads_config" in connecting["dynamic_resources"]:
            dynamic["ads_config"] = connecting["dynamic_resources"]["ads_config"]
        self._subscribe("clusters", dynamic, "cds_config", "cds_resources_locator")
        self._subscribe("listeners", dynamic, "lds_config", "lds_resources_locator")
        self._report_load(connecting.get("cluster_manager", {}))
        self._name_node(connecting["node"])
        server: Json = connecting["static_resources"]["clusters"][0]
        return server

    def _subscribe(self, kind: str, dynamic: Json, *fields: str) -> None:
        """Let the proxy subscribe to a kind at this server.

        If the bootstrap has another source for the kind, static resources of the kind stay static.
        """
        present = next((name for name in fields if field_value(dynamic, name) is not None), None)
        if present is None:
            dynamic[fields[0]] = copy.deepcopy(self.source)
            return
        self.has_other_server = True
        kept = f"; the static {kind} stay in the bootstrap" if self.pushed[kind] else ""
        self.notes.append(f"dynamic_resources.{present} {_leads(field_value(dynamic, present))} and is kept{kept}")
        self.kept[kind], self.pushed[kind] = self.pushed[kind], []

    def _report_load(self, manager: Json) -> None:
        """Let the proxy report its load to this server, unless the bootstrap names another server for that."""
        present = self.document.setdefault(json_key(self.document, "cluster_manager"), {})
        if field_value(present, "load_stats_config") is None:
            present.update(manager)
        if not present:
            del self.document[json_key(self.document, "cluster_manager")]

    def _name_node(self, default: Json) -> None:
        node = self.document.get("node") or {}
        missing = [name for name in ("id", "cluster") if not node.get(name)]
        self.document["node"] = {**node, **{name: default[name] for name in missing}}
        if missing:
            added = ", ".join(f"{name} {default[name]!r}" for name in missing)
            self.notes.append(f"the bootstrap did not name its node; it now has {added}")

    # Resources that stay static

    def _keep_api_listeners(self) -> None:
        for listener in list(self.pushed["listeners"]):
            if field_value(listener, "api_listener") is not None:
                self._keep("listeners", listener)
                name = listener.get("name")
                self.notes.append(
                    f"listener {name!r} is an API listener and stays: Envoy accepts API listeners in its bootstrap only"
                )

    def _keep_clusters(self) -> None:
        """Keep clusters that other parts of the bootstrap name: Envoy needs them before any response of a server."""
        clusters = {one.get("name"): one for one in self.pushed["clusters"]}
        waiting = [(name, f"{part} needs it") for part, value in self._own_parts().items() for name in _mentions(value)]
        for listener in self.kept["listeners"]:
            waiting += [(name, f"listener {listener.get('name')!r} stays") for name in _strings(listener)]
        waiting += [
            (name, "another cluster that stays names it") for one in self.kept["clusters"] for name in _mentions(one)
        ]
        while waiting:
            name, why = waiting.pop()
            cluster = clusters.pop(name, None)
            if cluster is not None:
                self._keep("clusters", cluster)
                self.notes.append(f"cluster {name!r} stays in the bootstrap: {why}")
                waiting += [(other, f"cluster {name!r} names it") for other in _mentions(cluster)]

    def _keep(self, kind: str, one: Json) -> None:
        self.pushed[kind] = [other for other in self.pushed[kind] if other is not one]
        self.kept[kind].append(one)

    # Resources that are pushed

    def _name_listeners(self) -> None:
        """Name listeners without a name: Envoy generates a name at every start, but LDS needs a stable one."""
        used_names = {one.get("name") for one in (*self.pushed["listeners"], *self.kept["listeners"])}
        for index, listener in enumerate(self.pushed["listeners"]):
            if not listener.get("name"):
                name = free_name(_address_name(field_value(listener, "address")), used_names)
                used_names.add(name)
                self.pushed["listeners"][index] = {"name": name, **_without(listener, "name")}
                self.notes.append(f"a listener without a name is now named {name!r}")

    def _discover_secrets(self) -> None:
        """Add the config source to references to secrets that are pushed. Static secrets are referred to by name alone.

        If there is another server, all secrets stay static, since its resources may refer to any of them.
        """
        if self.has_other_server:
            self.kept["secrets"], self.pushed["secrets"] = self.pushed["secrets"], []
            if self.kept["secrets"]:
                self.notes.append(
                    "the static secrets stay in the bootstrap: resources of the other source may need them"
                )
            return
        secrets = {one.get("name"): one for one in self.pushed["secrets"]}
        by_pushed, by_kept = list(_users(self.pushed)), list(_users(self.kept))
        by_kept += _static_references(BOOTSTRAP, self._own_parts())
        for reference in by_pushed:
            if reference["name"] in secrets:
                reference["sds_config"] = copy.deepcopy(self.source)
        discovered = {reference["name"] for reference in by_pushed}
        for name in dict.fromkeys(reference["name"] for reference in by_kept):
            if name not in secrets:
                continue
            self.kept["secrets"].append(secrets[name])
            self.notes.append(f"secret {name!r} stays in the bootstrap: static resources need it")
            if name not in discovered:
                self.pushed["secrets"].remove(secrets[name])

    def _own_parts(self) -> Json:
        """The bootstrap without static resources and node. The ``cluster`` of a node does not name a cluster."""
        apart = ("node", json_key(self.document, "static_resources"))
        return {part: value for part, value in self.document.items() if part not in apart}

    def _put_static(self, server: Json) -> None:
        static = self.document.setdefault(json_key(self.document, "static_resources"), {})
        for kind in _TYPES:
            static.pop(kind, None)
            if self.kept[kind]:
                static[kind] = self.kept[kind]
        static["clusters"] = [server, *self.kept["clusters"]]

    def _with_this_source(self, resources: list[Json]) -> list[Json]:
        """Resources of a dump. References to them get the config source of this server."""
        keys = {(one["@type"], one.get(_NAMES.get(one["@type"], "name"))) for one in resources}
        for kind in ("clusters", "listeners"):
            for one in self.pushed[kind]:
                for source in _sources(_TYPES[kind], one, keys):
                    source.clear()
                    source.update(copy.deepcopy(self.source))
        return resources

    def _note_files(self, resources: list[Json]) -> None:
        """Note the certificates and keys that are files."""
        named = {file for one in resources for file in _certificate_files(one)}
        if named:
            shown = ", ".join(sorted(named)[:_FILES_SHOWN]) + (" ..." if len(named) > _FILES_SHOWN else "")
            self.notes.append(f"certificates and keys in files stay on the proxy's disk: {shown}")


def _push_errors(resources: list[Json]) -> Iterator[Violation]:
    for index, resource in enumerate(resources):
        try:
            decode_resource(resource)
        except ValidationError as error:
            yield from (replace(one, index=index) for one in error.violations)


_NAMES = {ENDPOINT: "cluster_name"}
_FILES_SHOWN = 5
_TLS_HOLDERS = "envoy.extensions.transport_sockets.tls.v3."


def _certificate_files(resource: Json) -> Iterator[str]:
    for type_name, one in typed_values(resource["@type"], resource):
        if type_name.startswith(_TLS_HOLDERS):
            for value in one.values():
                if isinstance(value, dict) and isinstance(value.get("filename"), str):
                    yield value["filename"]


def _sources(type_url: str, resource: Json, keys: Collection[tuple[str, Any]]) -> Iterator[Json]:
    """The config sources of a cluster or listener for the endpoints and routes in ``keys`` (type URL, name)."""
    for type_name, one in typed_values(type_url, resource):
        if type_name == "envoy.config.cluster.v3.Cluster":
            config = field_value(one, "eds_cluster_config")
            name = config and (field_value(config, "service_name") or one.get("name"))
            source = config and field_value(config, "eds_config")
            wanted: tuple[str, Any] = (ENDPOINT, name)
        elif type_name.endswith(".http_connection_manager.v3.Rds"):
            wanted, source = (ROUTE, field_value(one, "route_config_name")), field_value(one, "config_source")
        else:
            continue
        if isinstance(source, dict) and wanted in keys:
            yield source


def _listed(value: Any) -> list[Any]:
    """A list. Envoy accepts a single value in place of one."""
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _without(value: Json, name: str) -> Json:
    return {key: below for key, below in value.items() if key != name}


def _leads(source: Any) -> str:
    is_file = isinstance(source, dict) and any(field_value(source, name) for name in ("path_config_source", "path"))
    return "reads files on the proxy" if is_file else "uses another source"


def _renamed(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(below, name) for key, below in value.items()}
    if isinstance(value, list):
        return [_renamed(one, name) for one in value]
    return name if value == XDS_CLUSTER else value


def _mentions(value: Any, key: str = "") -> Iterator[str]:
    """Strings that may name a cluster: those under a key that contains ``cluster``."""
    if isinstance(value, str) and "cluster" in key.lower():
        yield value
    below = (
        value.items() if isinstance(value, dict) else ((key, one) for one in value) if isinstance(value, list) else ()
    )
    for name, one in below:
        yield from _mentions(one, name)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(one)


def _users(kinds: Kinds) -> Iterator[Json]:
    for kind in ("clusters", "listeners"):
        for one in kinds[kind]:
            yield from _static_references(_TYPES[kind], one)


def _static_references(type_name: str, value: Json) -> list[Json]:
    """References to secrets by name alone."""
    references = [one for full_name, one in typed_values(type_name, value) if full_name == _SDS_CONFIG]
    return [one for one in references if field_value(one, "sds_config") is None and isinstance(one.get("name"), str)]


def _address_name(address: Any) -> str:
    socket = field_value(address, "socket_address") if isinstance(address, dict) else None
    if isinstance(socket, dict):
        return f"{socket.get('address')}_{field_value(socket, 'port_value')}"
    pipe = address.get("pipe") if isinstance(address, dict) else None
    return str(pipe.get("path")) if isinstance(pipe, dict) else "listener"


Resource = dict[str, Any]

_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_STATIC_TYPES = (None, "", 0, "STATIC", "static")


def split_endpoints(resources: Iterable[Resource], source: Resource, notes: list[str]) -> Iterator[Resource]:
    """Turn static clusters into EDS clusters, in place, and yield their assignments.

    DNS clusters keep their endpoints, since EDS accepts IP addresses only; so do clusters with equal endpoints.
    """
    inline, twice = [], []
    for cluster in (one for one in resources if one["@type"] == CLUSTER):
        if not isinstance(field_value(cluster, "load_assignment"), dict) or not cluster.get("name"):
            continue
        if field_value(cluster, "type") not in _STATIC_TYPES or field_value(cluster, "cluster_type") is not None:
            inline.append(cluster["name"])
        elif _has_equal_endpoints(field_value(cluster, "load_assignment")):
            twice.append(cluster["name"])
        else:
            yield _assignment(cluster, source)
    if inline:
        notes.append(f"endpoints of DNS clusters stay inline: {', '.join(sorted(inline))}")
    if twice:
        names = ", ".join(sorted(twice))
        notes.append(
            f"endpoints of clusters with an address twice stay inline, since EDS keeps only one of them: {names}"
        )


def _has_equal_endpoints(assignment: Json) -> bool:
    """Whether an assignment has an address twice. EDS keeps the first endpoint, a static cluster keeps both."""
    addresses = [
        json.dumps(field_value(one, "address"), sort_keys=True)
        for type_name, one in typed_values(ENDPOINT, assignment)
        if type_name == "envoy.config.endpoint.v3.Endpoint"
    ]
    return len(set(addresses)) < len(addresses)


def _assignment(cluster: Resource, source: Resource) -> Resource:
    assignment = cluster.pop(json_key(cluster, "load_assignment"))
    cluster["type"] = "EDS"
    cluster["eds_cluster_config"] = {"eds_config": copy.deepcopy(source)}
    rest = {key: value for key, value in assignment.items() if key != json_key(assignment, "cluster_name")}
    return {"@type": ENDPOINT, "cluster_name": cluster["name"], **rest}


def split_routes(resources: Iterable[Resource], source: Resource) -> Iterator[Resource]:
    """Replace inline route configurations of listeners by RDS, in place, and yield them.

    A configuration without a name is named after its listener and ``stat_prefix``. Equal ones of one name are shared.
    """
    used_names: dict[str, Resource] = {}
    for listener in (one for one in resources if one["@type"] == LISTENER):
        for type_name, manager in typed_values(LISTENER, listener):
            if type_name == _MANAGER and isinstance(field_value(manager, "route_config"), dict):
                routes = manager.pop(json_key(manager, "route_config"))
                name = _named(routes, f"{listener.get('name')}/{field_value(manager, 'stat_prefix')}", used_names)
                manager["rds"] = {"route_config_name": name, "config_source": copy.deepcopy(source)}
    for name, routes in used_names.items():
        yield {"@type": ROUTE, "name": name, **{key: value for key, value in routes.items() if key != "name"}}


def _named(routes: Resource, otherwise: str, used_names: dict[str, Resource]) -> str:
    given = routes.get("name")
    name = given if given and isinstance(given, str) else otherwise
    if used_names.get(name) != routes:
        name = free_name(name, used_names)
        used_names[name] = routes
    return name


def free_name(name: str, used_names: Collection[Any]) -> str:
    """``name``, with a number appended if ``used_names`` has it."""
    free, number = name, 1
    while free in used_names:
        number += 1
        free = f"{name}_{number}"
    return free
