"""An Envoy bootstrap with static resources, made into a snapshot and the bootstrap that goes with it.

Works on plain values: what is not understood stays as it stands. What the bootstrap itself needs (a cluster for traces
or statistics, another management server) stays static.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xds.codec.resources import decode_resource
from xds.codec.typed_values import field_value, json_key, typed_values
from xds.control.bootstrap import XDS_CLUSTER, BootstrapOptions, Mode
from xds.control.bootstrap import bootstrap as connecting_bootstrap
from xds.control.splitting import free_name, split_endpoints, split_routes
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.resource_type import CLUSTER, LISTENER, SECRET

Json = dict[str, Any]
Kinds = dict[str, list[Json]]

DEFAULT_OPTIONS = BootstrapOptions("envoy-1", "default", "127.0.0.1", 18000)
_BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"
_SDS_CONFIG = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"
_TYPES = {"clusters": CLUSTER, "secrets": SECRET, "listeners": LISTENER}
_NOTES_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Conversion:
    """``snapshot`` is what to push, ``bootstrap`` what to start the proxy with, ``notes`` what to know about them."""

    snapshot: Json
    bootstrap: Json
    notes: tuple[str, ...] = ()


def convert(
    bootstrap: Mapping[str, Any], *, options: BootstrapOptions = DEFAULT_OPTIONS, split: bool = False
) -> Conversion:
    """Take the static resources out of an Envoy bootstrap.

    ``options`` say where the server is, and name the node where the bootstrap does not. With ``split`` the endpoints of
    static clusters and inline route configurations become resources of their own (EDS, RDS); without it they stay
    where they are. The proxy behaves the same in both. Raises ``ValidationError`` for what is no bootstrap.
    """
    try:
        document = copy.deepcopy(dict(bootstrap))
        _check(document)
        return _Converter(document, options).convert(split)
    except RecursionError:
        raise MalformedError([Violation("too_deep", "nested too deeply")]) from None


def _check(document: Json) -> None:
    if "resources" in document:
        raise _wrong("this is a snapshot already, not a bootstrap", "/resources")
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

    def convert(self, split: bool) -> Conversion:
        static = field_value(self.document, "static_resources") or {}
        self.pushed = {kind: _listed(static.get(kind)) for kind in _TYPES}
        self.kept = {kind: [] for kind in _TYPES}
        if not any(self.pushed.values()):
            self.notes.append("there are no static resources in this bootstrap, hence nothing to push")
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
        self._check_pushable(resources)
        return Conversion({"resources": resources}, self.document, tuple(self.notes[:_NOTES_LIMIT]))

    # The way to the server

    def _connect(self) -> Json:
        """Add the way to the server to the bootstrap; its cluster."""
        held = self.document.setdefault(json_key(self.document, "dynamic_resources"), {})
        has_ads = field_value(held, "ads_config") is not None
        if has_ads:
            self.notes.append(
                "ads_config leads to another server and is kept; this server is asked on streams beside it"
            )
        names = {one.get("name") for one in self.pushed["clusters"]}
        options = replace(self.options, mode=Mode.SPLIT_DELTA) if has_ads else self.options
        made = _renamed(connecting_bootstrap(options), free_name(XDS_CLUSTER, names))
        self.source = made["dynamic_resources"]["cds_config"]
        if "ads_config" in made["dynamic_resources"]:
            held["ads_config"] = made["dynamic_resources"]["ads_config"]
        self._ask("clusters", held, "cds_config", "cds_resources_locator")
        self._ask("listeners", held, "lds_config", "lds_resources_locator")
        self._name_node(made["node"])
        server: Json = made["static_resources"]["clusters"][0]
        return server

    def _ask(self, kind: str, dynamic: Json, *fields: str) -> None:
        """Ask the server for a kind; where the bootstrap has a source of its own, what is static of it stays so."""
        present = next((name for name in fields if field_value(dynamic, name) is not None), None)
        if present is None:
            dynamic[fields[0]] = copy.deepcopy(self.source)
            return
        kept = f"; the static {kind} stay in the bootstrap" if self.pushed[kind] else ""
        self.notes.append(f"dynamic_resources.{present} {_leads(field_value(dynamic, present))} and is kept{kept}")
        self.kept[kind], self.pushed[kind] = self.pushed[kind], []

    def _name_node(self, otherwise: Json) -> None:
        node = self.document.get("node") or {}
        missing = [name for name in ("id", "cluster") if not node.get(name)]
        self.document["node"] = {**node, **{name: otherwise[name] for name in missing}}
        if missing:
            put = ", ".join(f"{name} {otherwise[name]!r}" for name in missing)
            self.notes.append(f"the bootstrap did not name its node; it is {put} now")

    # What stays static

    def _keep_api_listeners(self) -> None:
        for listener in list(self.pushed["listeners"]):
            if field_value(listener, "api_listener") is not None:
                self._keep("listeners", listener)
                name = listener.get("name")
                self.notes.append(f"listener {name!r} is an API listener and stays: Envoy takes none from a server")

    def _keep_clusters(self) -> None:
        """Clusters that the rest of the bootstrap names must be there before any server has answered."""
        clusters = {one.get("name"): one for one in self.pushed["clusters"]}
        waiting = [(name, f"{part} needs it") for part, value in self._own_parts().items() for name in _mentions(value)]
        for listener in self.kept["listeners"]:
            waiting += [(name, f"listener {listener.get('name')!r} stays") for name in _strings(listener)]
        waiting += [(name, "another that stays names it") for one in self.kept["clusters"] for name in _mentions(one)]
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

    # What is pushed

    def _name_listeners(self) -> None:
        """Envoy would make up another name at every start; by discovery a listener needs one that stays."""
        taken = {one.get("name") for one in (*self.pushed["listeners"], *self.kept["listeners"])}
        for index, listener in enumerate(self.pushed["listeners"]):
            if not listener.get("name"):
                name = free_name(_address_name(field_value(listener, "address")), taken)
                taken.add(name)
                self.pushed["listeners"][index] = {"name": name, **_without(listener, "name")}
                self.notes.append(f"a listener without a name is called {name!r} now")

    def _discover_secrets(self) -> None:
        """Static secrets are found by name alone; those that are pushed by name and source."""
        secrets = {one.get("name"): one for one in self.pushed["secrets"]}
        by_pushed, by_kept = list(_users(self.pushed)), list(_users(self.kept))
        by_kept += _static_references(_BOOTSTRAP, self._own_parts())
        for reference in by_pushed:
            if reference["name"] in secrets:
                reference["sds_config"] = copy.deepcopy(self.source)
        discovered = {reference["name"] for reference in by_pushed}
        for name in dict.fromkeys(reference["name"] for reference in by_kept):
            if name not in secrets:
                continue
            self.kept["secrets"].append(secrets[name])
            self.notes.append(f"secret {name!r} stays in the bootstrap: what stays there needs it")
            if name not in discovered:
                self.pushed["secrets"].remove(secrets[name])

    def _own_parts(self) -> Json:
        """The bootstrap without what is static and without its node, whose cluster is none of Envoy's."""
        apart = ("node", json_key(self.document, "static_resources"))
        return {part: value for part, value in self.document.items() if part not in apart}

    def _put_static(self, server: Json) -> None:
        static = self.document.setdefault(json_key(self.document, "static_resources"), {})
        for kind in _TYPES:
            static.pop(kind, None)
            if self.kept[kind]:
                static[kind] = self.kept[kind]
        static["clusters"] = [server, *self.kept["clusters"]]

    def _check_pushable(self, resources: list[Json]) -> None:
        for resource in resources:
            try:
                decode_resource(resource)
            except ValidationError as error:
                self.notes += [f"cannot be pushed as it is: {violation}" for violation in error.violations]


def _listed(value: Any) -> list[Any]:
    """Envoy takes a single value where a list is expected."""
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _without(value: Json, name: str) -> Json:
    return {key: below for key, below in value.items() if key != name}


def _leads(source: Any) -> str:
    is_file = isinstance(source, dict) and any(field_value(source, name) for name in ("path_config_source", "path"))
    return "reads files on the proxy" if is_file else "leads elsewhere"


def _renamed(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(below, name) for key, below in value.items()}
    if isinstance(value, list):
        return [_renamed(one, name) for one in value]
    return name if value == XDS_CLUSTER else value


def _mentions(value: Any, key: str = "") -> Iterator[str]:
    """Strings that may name a cluster: all that stand under a key that says so."""
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
    """Where a secret is meant by its name alone."""
    found = [one for full_name, one in typed_values(type_name, value) if full_name == _SDS_CONFIG]
    return [one for one in found if field_value(one, "sds_config") is None and isinstance(one.get("name"), str)]


def _address_name(address: Any) -> str:
    socket = field_value(address, "socket_address") if isinstance(address, dict) else None
    if isinstance(socket, dict):
        return f"{socket.get('address')}_{field_value(socket, 'port_value')}"
    pipe = address.get("pipe") if isinstance(address, dict) else None
    return str(pipe.get("path")) if isinstance(pipe, dict) else "listener"
