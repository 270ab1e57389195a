"""What a destination is called: a small set of grammars, from the path of a request to the services that it may mean.

========== =====================================================================
Kubernetes ``[LABEL.]SERVICE.NAMESPACE.svc.DOMAIN``
Consul     ``[LABEL.]SERVICE.service[.NAMESPACE.ns][.DC[.dc]].consul``, also ``SERVICE.virtual...``
plain      a name without dots; the name of a cluster or virtual host
IP         an address
========== =====================================================================

A name that none of them reads is foreign: the proxy gets an error, and uses the original destination of its connection.
``LABEL`` is a subset of the service, else the name of an instance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from xds.model.errors import RemoteProtocolError, StatusCode

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


class Generation(StrEnum):
    """The protocol that a client speaks: that of 2018 (``conduit``), or today's."""

    CONDUIT = "conduit"
    TODAY = "linkerd"


@dataclass(frozen=True, slots=True)
class NamingRules:
    """Which names are ours.

    ``cluster_domains``: the domains of Kubernetes names; the first one is written in answers. ``namespace``: the one of
    services without a namespace in their name.
    """

    cluster_domains: tuple[str, ...] = ("cluster.local",)
    consul_domain: str = "consul"
    namespace: str = "default"


DEFAULT_NAMING = NamingRules()


class NameReading(NamedTuple):
    """A service that a name may mean. ``datacenter`` is empty for that of this server."""

    service: str
    label: str = ""
    datacenter: str = ""


@dataclass(frozen=True, slots=True)
class Authority:
    """The destination of a request. ``host`` is the name as it was asked for, ``address`` that of `Grammar.IP`.

    ``readings``: the services that it may mean; the first one that exists counts. ``service`` and ``namespace`` are
    the parts of the name, for labels.
    """

    host: str
    port: int
    grammar: Grammar
    readings: tuple[NameReading, ...] = ()
    service: str = ""
    namespace: str = ""
    address: Address | None = field(default=None)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def invalid(message: str) -> RemoteProtocolError:
    """INVALID_ARGUMENT: a proxy takes it for "this name is not yours", and does not ask again."""
    return RemoteProtocolError(StatusCode.INVALID_ARGUMENT, message)


def read_authority(
    path: str, rules: NamingRules = DEFAULT_NAMING, generation: Generation = Generation.TODAY
) -> Authority:
    """The destination that a path names, ``HOST[:PORT]``; port 80 by default.

    Raises ``RemoteProtocolError`` (INVALID_ARGUMENT) for a path that is malformed. A name of another world is
    `Grammar.FOREIGN`: only those who know clusters and virtual hosts can tell whether it is one of theirs.
    """
    if len(path) > PATH_CHARACTERS:
        raise invalid(f"a path of {len(path)} characters; at most {PATH_CHARACTERS} are accepted")
    host, port = _split(path)
    address = _address(host)
    if address is not None:
        return Authority(str(address), port, Grammar.IP, address=address)
    if generation is Generation.CONDUIT:
        host = host.removesuffix(".")
    return _name(host, port, rules, generation)


def _split(path: str) -> tuple[str, int]:
    """Host and port, as Go's ``SplitHostPort`` splits them."""
    if path.startswith("["):
        host, bracket, rest = path[1:].partition("]")
        if not bracket or not rest.startswith(":") or ":" not in host:
            raise invalid(f"{path!r:.200} is no address: expected [IPV6]:PORT")
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
        found = ip_address(host)
    except ValueError:
        if ":" in host:
            raise invalid(f"{host!r:.200} is no IPv6 address") from None
        return None
    if "%" in host:
        raise invalid(f"{host!r:.200}: an address with a zone is not supported")
    return found


def is_label(text: str) -> bool:
    """Whether a text is a part of a name, between its dots."""
    return _LABEL.fullmatch(text) is not None


def _name(host: str, port: int, rules: NamingRules, generation: Generation) -> Authority:
    labels = host.split(".")
    if not all(map(is_label, labels)):
        return _foreign(host, port)
    if len(labels) == 1:
        return Authority(host, port, Grammar.PLAIN, (NameReading(host),), host, rules.namespace)
    for domain in _domains(rules, generation):
        if host.endswith(domain):
            return _kubernetes(host, port, host.removesuffix(domain).split("."), rules)
    if host.endswith(f".{rules.consul_domain}"):
        return _consul(host, port, host.removesuffix(f".{rules.consul_domain}").split("."), rules)
    return _foreign(host, port)


def _domains(rules: NamingRules, generation: Generation) -> list[str]:
    found = [f".{_SVC}.{domain}" for domain in rules.cluster_domains]
    # In 2018 "cluster.local" stood for any domain, and the domain could be left out.
    return [*found, f".{_SVC}.cluster.local", f".{_SVC}"] if generation is Generation.CONDUIT else found


def _foreign(host: str, port: int) -> Authority:
    return Authority(host, port, Grammar.FOREIGN, (NameReading(host),), host)


def _kubernetes(host: str, port: int, labels: list[str], rules: NamingRules) -> Authority:
    if len(labels) not in (2, 3):
        return _foreign(host, port)
    label = labels[0] if len(labels) == 3 else ""
    service, namespace = labels[-2:]
    readings = _in_namespace(service, namespace, label, "", rules)
    return Authority(host, port, Grammar.KUBERNETES, readings, service, namespace)


def _in_namespace(
    service: str, namespace: str, label: str, datacenter: str, rules: NamingRules
) -> tuple[NameReading, ...]:
    """A service of Kubernetes has its namespace in its name; one of other sources has none, and so the default one."""
    found = (NameReading(f"{service}.{namespace}", label, datacenter),)
    return (*found, NameReading(service, label, datacenter)) if namespace == rules.namespace else found


def _consul(host: str, port: int, labels: list[str], rules: NamingRules) -> Authority:
    """The names of Consul's DNS, read from the end. One without a namespace is that of a service without one first."""
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
    readings = _in_namespace(rest[-2], namespace or rules.namespace, label, datacenter, rules)
    readings = readings if namespace else readings[::-1]
    return Authority(host, port, Grammar.CONSUL, readings, rest[-2], namespace or rules.namespace)


def written(reading: NameReading, grammar: Grammar, rules: NamingRules = DEFAULT_NAMING) -> str:
    """The name of a service, as `read_authority` reads it; empty where no grammar can say it.

    In the grammar of the request where that is possible; Consul's says a datacenter.
    """
    service, dot, namespace = reading.service.partition(".")
    namespace = namespace if dot else rules.namespace
    label = f"{reading.label}." if reading.label else ""
    if any(part and not is_label(part) for part in (service, namespace, reading.label, reading.datacenter)):
        return ""
    if grammar is Grammar.CONSUL or reading.datacenter:
        where = f".{namespace}.{_NS}" if dot else ""
        datacenter = f".{reading.datacenter}.{_DC}" if reading.datacenter else ""
        return f"{label}{service}.{_SERVICE}{where}{datacenter}.{rules.consul_domain}"
    if grammar is Grammar.PLAIN and not dot and not label and not service.isdigit():  # a number is no name to a proxy
        return service
    return f"{label}{service}.{namespace}.{_SVC}.{rules.cluster_domains[0]}"
