"""Names of destinations: a few grammars that read the path of a request as the services that it may mean.

========== =====================================================================
Kubernetes ``[LABEL.]SERVICE.NAMESPACE.svc.DOMAIN``
Consul     ``[LABEL.]SERVICE.service[.NAMESPACE.ns][.DC[.dc]].consul``, also ``SERVICE.virtual...``
plain      a name without dots; the name of a cluster or virtual host
IP         an address
========== =====================================================================

A name that no grammar reads is foreign: the proxy gets an error, and uses the original destination of its connection.
``LABEL`` is a subset of the service, else the name of an instance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.ip_address import address_text

DEFAULT_PORT = 80
PATH_CHARACTERS = 1024
PORT_MAX = 65_535

Address = IPv4Address | IPv6Address

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_SVC, _SERVICE, _VIRTUAL, _NS, _DC = "svc", "service", "virtual", "ns", "dc"


class Grammar(StrEnum):
    """How the name of a destination is read."""

    KUBERNETES = "kubernetes"
    CONSUL = "consul"
    PLAIN = "plain"
    FOREIGN = "foreign"
    IP = "ip"


class ProtocolGeneration(StrEnum):
    """The generation of a client's protocol: that of 2018 (``conduit``), or today's (``linkerd``)."""

    CONDUIT = "conduit"
    LINKERD = "linkerd"


@dataclass(frozen=True, slots=True)
class NamingRules:
    """The names that this server answers for.

    ``cluster_domains``: the domains of Kubernetes names; answers use the first one. ``namespace``: that of services
    without a namespace in their name.
    """

    cluster_domains: tuple[str, ...] = ("cluster.local",)
    consul_domain: str = "consul"
    namespace: str = "default"


DEFAULT_NAMING = NamingRules()


class ServiceCandidate(NamedTuple):
    """A service that a name may mean. ``datacenter`` is empty for that of this server."""

    service: str
    label: str = ""
    datacenter: str = ""


@dataclass(frozen=True, slots=True)
class Authority:
    """The destination of a request. ``host`` is the requested name; ``address`` is set for `Grammar.IP`.

    ``candidates`` has the services that the name may mean; the first one that exists counts. ``service`` and
    ``namespace`` are the parts of the name, for labels.
    """

    host: str
    port: int
    grammar: Grammar
    candidates: tuple[ServiceCandidate, ...] = ()
    service: str = ""
    namespace: str = ""
    address: Address | None = field(default=None)

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def invalid(message: str) -> RemoteProtocolError:
    """The error INVALID_ARGUMENT. A proxy understands that this server does not have the name, and does not retry."""
    return RemoteProtocolError(StatusCode.INVALID_ARGUMENT, message)


def read_authority(
    path: str, rules: NamingRules = DEFAULT_NAMING, generation: ProtocolGeneration = ProtocolGeneration.LINKERD
) -> Authority:
    """The destination that a path names, ``HOST[:PORT]``; port 80 by default.

    Raises ``RemoteProtocolError`` (INVALID_ARGUMENT) for a malformed path. A name of no grammar is `Grammar.FOREIGN`;
    it may still be the name of a cluster or virtual host.
    """
    if len(path) > PATH_CHARACTERS:
        raise invalid(f"a path of {len(path)} characters; at most {PATH_CHARACTERS} are accepted")
    host, port = _split(path)
    address = _address(host)
    if address is not None:
        return Authority(str(address), port, Grammar.IP, address=address)
    if generation is ProtocolGeneration.CONDUIT:
        host = host.removesuffix(".")
    return _name(host, port, rules, generation)


def _split(path: str) -> tuple[str, int]:
    """Host and port, as Go's ``SplitHostPort`` splits them."""
    if path.startswith("["):
        host, bracket, rest = path[1:].partition("]")
        if not bracket or not rest.startswith(":") or ":" not in host:
            raise invalid(f"{path!r:.200} is not an address: expected [IPV6]:PORT")
        return host, _port(rest[1:], path)
    host, colon, port = path.partition(":")
    if ":" in port:
        raise invalid(f"{path!r:.200} has too many colons: an IPv6 address needs brackets and a port")
    if not host:
        raise invalid(f"{path!r:.200} has no host")
    return host, _port(port, path) if colon else DEFAULT_PORT


def _port(text: str, path: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 10 and 0 < int(text) <= PORT_MAX:
        return int(text)
    raise invalid(f"{path!r:.200}: port {text!r:.20} is not in 1..{PORT_MAX}")


def _address(host: str) -> Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        if ":" in host:
            raise invalid(f"{host!r:.200} is not an IPv6 address") from None
        return None
    if "%" in host:
        raise invalid(f"{host!r:.200}: an address with a zone is not supported")
    return address


def is_label(text: str) -> bool:
    """Whether a text is a part of a name, between its dots."""
    return _LABEL.fullmatch(text) is not None


def _name(host: str, port: int, rules: NamingRules, generation: ProtocolGeneration) -> Authority:
    labels = host.split(".")
    if not all(map(is_label, labels)):
        return _foreign(host, port)
    if len(labels) == 1:
        return Authority(host, port, Grammar.PLAIN, (ServiceCandidate(host),), host, rules.namespace)
    for domain in _domains(rules, generation):
        if host.endswith(domain):
            return _kubernetes(host, port, host.removesuffix(domain).split("."), rules)
    if host.endswith(f".{rules.consul_domain}"):
        return _consul(host, port, host.removesuffix(f".{rules.consul_domain}").split("."), rules)
    return _foreign(host, port)


def _domains(rules: NamingRules, generation: ProtocolGeneration) -> list[str]:
    domains = [f".{_SVC}.{domain}" for domain in rules.cluster_domains]
    # In 2018 "cluster.local" stood for any domain, and the domain could be left out.
    return [*domains, f".{_SVC}.cluster.local", f".{_SVC}"] if generation is ProtocolGeneration.CONDUIT else domains


def _foreign(host: str, port: int) -> Authority:
    return Authority(host, port, Grammar.FOREIGN, (ServiceCandidate(host),), host)


def _kubernetes(host: str, port: int, labels: list[str], rules: NamingRules) -> Authority:
    if len(labels) not in (2, 3):
        return _foreign(host, port)
    label = labels[0] if len(labels) == 3 else ""
    service, namespace = labels[-2:]
    candidates = _candidates(service, namespace, label, "", rules)
    return Authority(host, port, Grammar.KUBERNETES, candidates, service, namespace)


def _candidates(
    service: str, namespace: str, label: str, datacenter: str, rules: NamingRules
) -> tuple[ServiceCandidate, ...]:
    """The candidates in a namespace. Kubernetes services have it in their name; others are in the default one."""
    candidates = (ServiceCandidate(f"{service}.{namespace}", label, datacenter),)
    return (*candidates, ServiceCandidate(service, label, datacenter)) if namespace == rules.namespace else candidates


def _consul(host: str, port: int, labels: list[str], rules: NamingRules) -> Authority:
    """A name of Consul's DNS, read from the end. Without a namespace, the service without one comes first."""
    rest, datacenter, namespace = labels, "", ""
    if len(rest) > 2 and rest[-1] == _DC:
        rest, datacenter = rest[:-2], rest[-2]
    elif rest[-1] not in (_SERVICE, _VIRTUAL, _NS):
        rest, datacenter = rest[:-1], rest[-1]
    if len(rest) > 2 and rest[-1] == _NS:
        rest, namespace = rest[:-2], rest[-2]
    if len(rest) not in (2, 3) or rest[-1] not in (_SERVICE, _VIRTUAL):
        return _foreign(host, port)
    label = rest[0] if len(rest) == 3 else ""
    candidates = _candidates(rest[-2], namespace or rules.namespace, label, datacenter, rules)
    candidates = candidates if namespace else candidates[::-1]
    return Authority(host, port, Grammar.CONSUL, candidates, rest[-2], namespace or rules.namespace)


def service_host(candidate: ServiceCandidate, grammar: Grammar, rules: NamingRules = DEFAULT_NAMING) -> str:
    """The host name of a service, as `read_authority` reads it; empty if no grammar can express it.

    The grammar is that of the request if possible. A datacenter needs Consul's grammar.
    """
    service, dot, namespace = candidate.service.partition(".")
    namespace = namespace if dot else rules.namespace
    label = f"{candidate.label}." if candidate.label else ""
    if any(part and not is_label(part) for part in (service, namespace, candidate.label, candidate.datacenter)):
        return ""
    if grammar is Grammar.CONSUL or candidate.datacenter:
        namespace_part = f".{namespace}.{_NS}" if dot else ""
        datacenter = f".{candidate.datacenter}.{_DC}" if candidate.datacenter else ""
        return f"{label}{service}.{_SERVICE}{namespace_part}{datacenter}.{rules.consul_domain}"
    if (
        grammar is Grammar.PLAIN and not dot and not label and not service.isdigit()
    ):  # a proxy does not accept a number as a name
        return service
    return f"{label}{service}.{namespace}.{_SVC}.{rules.cluster_domains[0]}"
