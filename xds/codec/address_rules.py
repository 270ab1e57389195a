"""Addresses that must be IP addresses: Envoy resolves names only for clusters of type STRICT_DNS and LOGICAL_DNS.

Measured with Envoy 1.40: "malformed IP address: a.example. Consider setting resolver_name or setting cluster type to
'STRICT_DNS' or 'LOGICAL_DNS'". A pipe and an internal listener are addresses too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from xds.codec.findings import FieldPath, Findings
from xds.codec.rules import Problem, is_ip, missing

_BUILT_IN_RESOLVERS = ("", "envoy.ip")
_NO_ENDPOINT = "endpoint_name"  # LEDS: the endpoint itself is another resource
_CODE = "bad_address"
_PIPE_BYTES = 107  # of Linux (sun_path), without the zero at the end

_OCTET = rb"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"


def _nested(length: int) -> bytes:
    """A pattern for the bytes before the ``SocketAddress`` of an endpoint that has only an address of this length."""
    return b"\n\\x%02x\n\\x%02x\n\\x%02x" % (length + 4, length + 2, length)


# ``LbEndpoint.endpoint``, in it ``address``, in it ``socket_address`` with an IPv4 address and a port: the lengths say
# that there is nothing else. The group is the address and the port.
_MEMBER = re.compile(
    rb"(?:" + b"|".join(map(_nested, range(11, 24))) + rb")((?:\x08[\x00\x01])?\x12[\x07-\x0f]"
    rb"(?:" + _OCTET + rb"\.){3}" + _OCTET + rb"\x18[\x80-\xff]{0,2}[\x00-\x7f])"
)


def address_problems(address: Any, hint: str = "") -> list[Problem]:
    """The problems of an ``Address`` that Envoy uses without resolving names."""
    if address.WhichOneof("address") == "pipe":
        return _long_path(address.pipe.path)
    if address.WhichOneof("address") != "socket_address":
        return []
    return [one.below("socket_address") for one in socket_problems(address.socket_address, hint)]


def _long_path(path: str) -> list[Problem]:
    size_bytes = len(path.encode(errors="surrogatepass"))
    if size_bytes <= _PIPE_BYTES:
        return []
    detail = f"the path of a Unix domain socket has at most {_PIPE_BYTES} bytes, and this has {size_bytes}"
    return [Problem(("pipe", "path"), "too_long", detail)]


def socket_problems(socket: Any, hint: str = "") -> list[Problem]:
    """The problems of a ``SocketAddress`` that Envoy uses without resolving names."""
    if socket.resolver_name not in _BUILT_IN_RESOLVERS:
        return []
    if socket.address and not is_ip(socket.address):
        detail = f"address must be an IP address; not {socket.address[:80]!r}"
        return [Problem(("address",), _CODE, detail, hint or _hint(socket.address))]
    if socket.WhichOneof("port_specifier") == "named_port":
        return [Problem(("named_port",), _CODE, "a port must be a number here", "set port_value")]
    return []


def _hint(text: str) -> str:
    return "leave out the brackets" if text.startswith("[") else ""


def bound_address_problems(message: Any) -> list[Problem]:
    """The problems of a ``BindConfig``, which has the source address of connections."""
    if not message.HasField("source_address"):
        return []
    return [one.below("source_address") for one in socket_problems(message.source_address)]


_NAMES = "endpoints with names need a cluster of type STRICT_DNS or LOGICAL_DNS"


def assignment_problems(assignment: Any) -> list[Problem]:
    """The problems of the addresses in a ``ClusterLoadAssignment`` whose cluster resolves no names."""
    return [
        problem.below(*path)
        for path, member in _members(assignment)
        if member.WhichOneof("host_identifier") != _NO_ENDPOINT
        for problem in _endpoint(member.endpoint)
    ]


def _members(assignment: Any) -> Iterator[tuple[FieldPath, Any]]:
    for place, locality in enumerate(assignment.endpoints):
        for index, member in enumerate(locality.lb_endpoints):
            yield ("endpoints", place, "lb_endpoints", index), member


def _endpoint(endpoint: Any) -> Iterator[Problem]:
    if not endpoint.HasField("address"):
        yield missing(("endpoint", "address"), "an endpoint needs an address")
        return
    yield from _below(("endpoint", "address"), address_problems(endpoint.address, _name_hint(endpoint.address)))
    for index, further in enumerate(endpoint.additional_addresses):
        problems = address_problems(further.address, _name_hint(further.address))
        yield from _below(("endpoint", "additional_addresses", index, "address"), problems)
    if endpoint.health_check_config.HasField("address"):
        checked = address_problems(endpoint.health_check_config.address)
        yield from _below(("endpoint", "health_check_config", "address"), checked)


def _below(path: FieldPath, problems: Iterable[Problem]) -> Iterator[Problem]:
    return (one.below(*path) for one in problems)


def _name_hint(address: Any) -> str:
    text = address.socket_address.address
    return _NAMES if re.search("[g-zG-Z]", text) and "%" not in text else ""


def check_assignment(assignment: Any, body: bytes, findings: Findings) -> None:
    """Check the endpoints of an EDS resource; ``body`` is the message serialized.

    Adds an error for each address that is not an IP address, and a warning for each endpoint that has the address of an
    earlier one: Envoy keeps only the first. Assignments are long, so a search in the bytes counts the endpoints that
    have only an IPv4 address and a port. Only assignments with other endpoints are checked endpoint by endpoint.
    """
    plain = set(_MEMBER.findall(body))
    if len(plain) == sum(len(locality.lb_endpoints) for locality in assignment.endpoints):
        return
    problems = assignment_problems(assignment)
    for one in problems:
        findings.add(one.code, one.detail, one.path, hint=one.hint)
    if not problems:
        _warn_of_repeated(assignment, findings)


def _warn_of_repeated(assignment: Any, findings: Findings) -> None:
    seen: dict[bytes, FieldPath] = {}
    for path, member in _members(assignment):
        if member.WhichOneof("host_identifier") == _NO_ENDPOINT:
            continue
        key = member.endpoint.address.SerializeToString(deterministic=True)
        if key in seen:
            first = "/".join(map(str, seen[key]))
            detail = f"{first} has this address already; Envoy keeps only the first of equal endpoints"
            findings.warn("duplicate_endpoint", detail, (*path, "endpoint", "address"))
        else:
            seen[key] = path
