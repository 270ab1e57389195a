"""The role of an endpoint in a Linkerd mesh, from the metadata of instances and xDS endpoints.

Keys begin with ``linkerd-`` (which Consul allows) or ``linkerd.io/`` (which Kubernetes does) in the metadata of an
instance. An xDS endpoint has them in its metadata under ``io.linkerd``, without the prefix. `-` and `_` are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from xds.linkerd.core.endpoint import NO_MESH, Hint, Http2Params, MeshRole
from xds.linkerd.core.update_messages import SPIFFE

PREFIXES = ("linkerd-", "linkerd.io/")
FILTER_METADATA = "io.linkerd"
# Ports of protocols in which the server speaks first, as in Linkerd's own settings.
OPAQUE_PORTS = frozenset({25, 587, 3306, 4444, 5432, 6379, 9300, 11211})
_TRUE = frozenset({"true", "yes", "1", "enabled"})
_PORT_MAX = 65_535
_RANGES_LIMIT = 64


@dataclass(frozen=True, slots=True)
class MeshRules:
    """The settings for all meshed endpoints: names of identities, the port of their proxies, and opaque ports.

    An instance that declares itself ``meshed`` has the identity of its service account in ``trust_domain``.
    """

    trust_domain: str = "cluster.local"
    control_namespace: str = "linkerd"
    inbound_port: int = 4143
    opaque_ports: frozenset[int] = OPAQUE_PORTS
    http2: Http2Params | None = None
    label_keys: frozenset[str] = field(default_factory=frozenset)


def linkerd_values(meta: Mapping[str, str]) -> dict[str, str]:
    """The Linkerd values in the metadata of an instance, by their bare keys."""
    values = {}
    for key, value in meta.items():
        if key.startswith(PREFIXES):
            values[bare_key(key.removeprefix(PREFIXES[0]).removeprefix(PREFIXES[1]))] = value
    return values


def bare_key(text: str) -> str:
    """A key in its normal form, with underscores."""
    return text.replace("-", "_")


def mesh_role(values: Mapping[str, str], meta: Mapping[str, str], port: int, rules: MeshRules) -> MeshRole:
    """The role of an endpoint at a port. ``values`` are the Linkerd values, ``meta`` is all metadata."""
    if not values or port in port_set(values.get("skip_inbound_ports", "")):
        return NO_MESH
    identity = _identity(values, meta, rules)
    is_opaque = values.get("protocol") == Hint.OPAQUE or is_opaque_port(values, port, rules)
    role = MeshRole(hint=_hint(values, bool(identity), is_opaque))
    if not identity:
        return replace(role, inbound_port=_port(values) if role.hint is Hint.OPAQUE else 0)
    return replace(
        role,
        identity=identity,
        server_name=_server_name(values, identity),
        inbound_port=(_port(values) or rules.inbound_port) if is_opaque else 0,
        authority_override=values.get("authority", ""),
        http2=rules.http2,
    )


def is_opaque_port(values: Mapping[str, str], port: int, rules: MeshRules) -> bool:
    """Whether connections to a port are streams of bytes: as declared, else as the default opaque ports say."""
    declared = values.get("opaque_ports")
    return port in port_set(declared) if declared is not None else port in rules.opaque_ports


@lru_cache(4096)
def port_set(text: str) -> frozenset[int]:
    """Ports and ranges of ports, ``3306,9000-9010``. Invalid parts are left out."""
    return frozenset(port for part in text.split(",")[:_RANGES_LIMIT] for port in _range(part.strip()))


def _range(text: str) -> Iterable[int]:
    first, dash, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and (not dash or (last.isascii() and last.isdigit()))):
        return ()
    return range(max(int(first[:6]), 1), min(int((last if dash else first)[:6]), _PORT_MAX) + 1)


def _identity(values: Mapping[str, str], meta: Mapping[str, str], rules: MeshRules) -> str:
    """The identity. A SPIFFE identity without a server name cannot be verified, and is left out."""
    given = values.get("identity", "")
    if given:
        return given if not given.startswith(SPIFFE) or values.get("server_name") else ""
    account = values.get("serviceaccount") or meta.get("serviceaccount", "")
    namespace = values.get("namespace") or meta.get("namespace", "")
    if values.get("meshed", "").lower() not in _TRUE or not (account and namespace):
        return ""
    return f"{account}.{namespace}.serviceaccount.identity.{rules.control_namespace}.{rules.trust_domain}"


def _server_name(values: Mapping[str, str], identity: str) -> str:
    """The name for SNI. It is empty for a gateway, so that the proxy uses the identity."""
    given = values.get("server_name", "")
    return given or ("" if values.get("authority") else identity)


def _hint(values: Mapping[str, str], is_meshed: bool, is_opaque: bool) -> Hint:
    """The protocol hint. Outside of a mesh there is one only if the source declares it."""
    declared = values.get("protocol", "")
    if declared in (Hint.H2, Hint.OPAQUE):
        return Hint(declared)
    if not is_meshed or declared:
        return Hint.NONE
    return Hint.OPAQUE if is_opaque else Hint.H2


def _port(values: Mapping[str, str]) -> int:
    text = values.get("inbound_port", "")
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:6]) < _PORT_MAX else 0
