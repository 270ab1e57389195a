"""A client of the Linkerd API for the command line. Only commands that use it import it, with grpc and the messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from xds.calls.access import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from xds.cli.client import read_token
from xds.cli.errors import CommandError, Exit, file_errors
from xds.linkerd.proto import conduit_common_pb2, conduit_destination_pb2, destination_pb2

Json = dict[str, Any]

FIRST_S = 10.0  # for the first message

_CUT_BYTES = 3 << 20  # as in `xds.linkerd.core.update_messages`, which is slow to import
_ENDPOINT_BYTES = 64 << 10  # the largest endpoint
_GET = "/io.linkerd.proxy.destination.Destination/Get"
_PROFILE = "/io.linkerd.proxy.destination.Destination/GetProfile"
_GET_2018 = "/conduit.proxy.destination.Destination/Get"
_INSPECTION = ("xds-inspection", "true")  # `xds.linkerd.streams.INSPECTION`, which is slow to import
_EXITS = {
    grpc.StatusCode.INVALID_ARGUMENT: Exit.USAGE,
    grpc.StatusCode.NOT_FOUND: Exit.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION: Exit.CONFLICT,
    grpc.StatusCode.UNAUTHENTICATED: Exit.AUTH,
    grpc.StatusCode.PERMISSION_DENIED: Exit.AUTH,
    grpc.StatusCode.DEADLINE_EXCEEDED: Exit.TIMED_OUT,
}


@dataclass(frozen=True, slots=True)
class GrpcTarget:
    """The gRPC port of a server, with credentials. Empty credentials are taken from the environment."""

    address: str
    token_file: Path | None = None
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def channel(self) -> Any:
        """A channel, over TLS if an authority or a certificate is given. Raises ``CommandError``."""
        contents = [_read(given, name) for given, name in self._files()]
        if not any(contents):
            return grpc.insecure_channel(self.address)
        authority, certificate, key = contents
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(authority, key, certificate))

    def _files(self) -> tuple[tuple[Path | None, str], ...]:
        return (self.cacert, CA_VARIABLE), (self.cert, CERTIFICATE_VARIABLE), (self.key, KEY_VARIABLE)

    def metadata(self) -> list[tuple[str, str]]:
        """Metadata of a call: that it is no proxy's, and the token."""
        token = read_token(self.token_file)
        return [_INSPECTION, *([("authorization", f"Bearer {token}")] if token else ())]


def _read(given: Path | None, variable: str) -> bytes | None:
    path = given or (Path(os.environ[variable]) if os.environ.get(variable) else None)
    if path is None:
        return None
    with file_errors(path):
        return path.read_bytes()


def follow_endpoints(
    target: GrpcTarget, authority: str, token: str, *, conduit: bool = False, follows: bool = False
) -> Iterator[Json]:
    """The updates of a destination as JSON: those of the first answer; if ``follows``, also all later ones.

    Raises ``CommandError`` with the message of the server.
    """
    if conduit:
        request: Message = conduit_common_pb2.Destination(scheme="k8s", path=authority)
        yield from _follow(target, _GET_2018, request, conduit_destination_pb2.Update.FromString, follows)
    else:
        request = destination_pb2.GetDestination(path=authority, context_token=token)
        yield from _follow(target, _GET, request, destination_pb2.Update.FromString, follows)


def follow_profiles(target: GrpcTarget, authority: str, token: str, *, follows: bool = False) -> Iterator[Json]:
    """The profiles of a destination as JSON, as ``follow_endpoints``."""
    request = destination_pb2.GetDestination(path=authority, context_token=token)
    yield from _follow(target, _PROFILE, request, destination_pb2.DestinationProfile.FromString, follows)


def _follow(
    target: GrpcTarget, method: str, request: Message, decode: Callable[[bytes], Message], follows: bool
) -> Iterator[Json]:
    with target.channel() as channel:
        deadline_s = None if follows else FIRST_S
        call = channel.unary_stream(method, response_deserializer=decode)(
            request.SerializeToString(), timeout=deadline_s, metadata=target.metadata()
        )
        is_answered = False
        try:
            for message in call:
                is_answered = True
                yield readable(message)
                if not follows and not _is_cut(message):
                    return
        except grpc.RpcError as error:
            if is_answered and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return  # the first answer is complete
            raise CommandError(_EXITS.get(error.code(), Exit.UNREACHABLE), _error_text(target, error)) from None
        finally:
            call.cancel()
        if not follows:
            raise CommandError(Exit.UNREACHABLE, f"{target.address}: the server ended the stream without an answer")


def _is_cut(message: Message) -> bool:
    """Whether more messages of the first answer may follow: the server splits an answer when a message is full."""
    return message.ByteSize() > _CUT_BYTES - _ENDPOINT_BYTES


def _error_text(target: GrpcTarget, error: Any) -> str:
    return f"{target.address}: {error.code().name}: {error.details()}"


def readable(message: Message) -> Json:
    """A message as JSON, with addresses as ``HOST:PORT``."""
    document: Json = _with_addresses(MessageToDict(message, preserving_proto_field_name=True))
    return document


def _with_addresses(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_addresses(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) <= {"ip", "port"} and "ip" in value:
        return _address(value)
    members: Json = {name: _with_addresses(each) for name, each in value.items()}
    return members


def _address(value: Mapping[str, Any]) -> str:
    ip, port = value["ip"], value.get("port", 0)
    if "ipv4" in ip:
        return f"{IPv4Address(ip['ipv4'])}:{port}"
    parts = ip.get("ipv6", {})
    return f"[{IPv6Address(int(parts.get('first', 0)) << 64 | int(parts.get('last', 0)))}]:{port}"


def endpoint_lines(update: Json) -> Iterator[str]:
    """An update as text: a line for each endpoint that is added (+) or removed (-)."""
    for one in update.get("add", {}).get("addrs", ()):
        yield " ".join((f"+ {one['addr']}", f"weight={one.get('weight', 0)}", *_details(one)))
    if "add" in update and not update["add"].get("addrs"):
        yield "= nothing has changed"
    for address in update.get("remove", {}).get("addrs", ()):
        yield f"- {address}"
    if "no_endpoints" in update:
        exists = update["no_endpoints"].get("exists", False)
        yield "no endpoints: the service exists" if exists else "no endpoints: there is no such service"


def _details(one: Json) -> Iterator[str]:
    identity = one.get("tls_identity", {})
    name = identity.get("dns_like_identity", {}).get("name") or identity.get("uri_like_identity", {}).get("uri")
    hint = next((kind for kind in ("h2", "opaque") if kind in one.get("protocol_hint", {})), "")
    override = one.get("authority_override", {}).get("authority_override")
    fields = {
        "identity": name,
        "protocol": hint,
        "authority": override,
        **dict(sorted(one.get("metric_labels", {}).items())),
    }
    yield from (f"{key}={value}" for key, value in fields.items() if value)
