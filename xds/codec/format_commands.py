"""The commands of Envoy's format strings, such as ``%DOWNSTREAM_REMOTE_ADDRESS%``. Pure.

Envoy rejects the whole resource for one unknown command, or for a command with wrong parameters. The names are those of
Envoy's newest release (`tests/e2e/test_header_commands.py` compares them with a real one).
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

# A percent sign begins a command: %NAME%, %NAME(parameters)%, %NAME(parameters):length%. %% is one percent sign.
# Parameters may have parentheses.
SHOWN = 80  # characters of a command in a finding
_PART = re.compile(r"%%|%(?P<name>[A-Z0-9_]+)(?:\((?P<given>.*?)\))?(?P<length>:[0-9]+)?%")
_HEADERS = re.compile(r"(?!\??$)(:?[A-Za-z0-9!#$%&'*+.^_`|~-]+)?(\?(:?[A-Za-z0-9!#$%&'*+.^_`|~-]+)?)?")

_PLAIN_NAMES = """
    ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS
    CUSTOM_FLAGS DOWNSTREAM_CX_RTT DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED
    DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS
    DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_DIRECT_LOCAL_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS
    DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION DOWNSTREAM_HEADER_BYTES_RECEIVED
    DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID
    DOWNSTREAM_LOCAL_CLOSE_REASON DOWNSTREAM_LOCAL_DNS_SAN DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN
    DOWNSTREAM_LOCAL_OTHERNAME_SAN DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN
    DOWNSTREAM_PEER_CERT DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1 DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256
    DOWNSTREAM_PEER_CHAIN_SERIALS DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN
    DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_ISSUER
    DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256 DOWNSTREAM_PEER_ISSUER_SERIAL DOWNSTREAM_PEER_OTHERNAME_SAN
    DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS
    DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_GROUP DOWNSTREAM_TLS_SESSION_ID
    DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON DOWNSTREAM_WIRE_BYTES_RECEIVED
    DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME GRPC_STATUS_NUMBER HOSTNAME LISTENER_NAME LOCAL_REPLY_BODY
    PACKETS_RETRANSMITTED PROTOCOL
    REQUEST_DURATION REQUEST_HEADERS_BYTES REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_DURATION RESPONSE_FLAGS
    RESPONSE_FLAGS_LONG RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION ROUNDTRIP_DURATION
    ROUTE_NAME ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US SPAN_ID STREAM_ID TLS_JA3_FINGERPRINT
    TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID
    UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_CONNECTION_POOL_READY_DURATION
    UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT
    UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST
    UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME
    UPSTREAM_HOST_NAMES_ATTEMPTED UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME_WITHOUT_PORT
    UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_CLOSE_REASON UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN
    UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN
    UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS
    UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_SERVER_NAME
    UPSTREAM_TLS_CIPHER UPSTREAM_TLS_GROUP UPSTREAM_TLS_SESSION_ID UPSTREAM_TLS_VERSION
    UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT VIRTUAL_CLUSTER_NAME
"""
_OPTIONAL_NAMES = """
    DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT
    DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_PEER_CERT_V_END DOWNSTREAM_PEER_CERT_V_START
    DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT EMIT_TIME EMIT_TIME_LOCAL RESPONSE_CODE_DETAILS START_TIME
    START_TIME_LOCAL UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT UPSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START
    UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT
"""
_NAMES_OF_HEADERS = "REQ RESP TRAILER REQUEST_HEADER RESPONSE_HEADER RESPONSE_TRAILER STREAM_INFO_REQ"
_NEEDING_NAMES = "CEL DYNAMIC_METADATA ENVIRONMENT FILTER_STATE QUERY_PARAM TYPED_CEL UPSTREAM_FILTER_STATE"
_NEEDING_ONLY_NAMES = "CLUSTER_METADATA COMMON_DURATION PER_REQUEST_STATE UPSTREAM_METADATA"
# Their parameters are words of a fixed set, or have a language of their own. They are not checked.
_OTHER_NAMES = "COALESCE GRPC_STATUS METADATA PATH QUERY_PARAMS REQUESTED_SERVER_NAME XFCC_VALUE"

PLAIN = frozenset(_PLAIN_NAMES.split())
OPTIONAL = frozenset(_OPTIONAL_NAMES.split())  # parameters, but no length
OF_HEADERS = frozenset(_NAMES_OF_HEADERS.split())
NEEDING = frozenset(_NEEDING_NAMES.split())  # parameters, and optionally a length
NEEDING_ONLY = frozenset(_NEEDING_ONLY_NAMES.split())
_OTHER = frozenset(_OTHER_NAMES.split())


class CommandFault(NamedTuple):
    """What is wrong with a format string, as the end of a sentence.

    ``is_of_command``: a command is unknown or has wrong parameters. Otherwise a percent sign begins no command.
    """

    detail: str
    is_of_command: bool


def command_problem(value: str) -> str:
    """Why Envoy rejects a format string, as the end of a sentence; empty if no reason is known."""
    fault = command_fault(value)
    return "" if fault is None else fault.detail


def command_fault(value: str, added: Container[str] = ()) -> CommandFault | None:
    """The first fault of a format string. ``added`` are the commands of extensions; their parameters are not checked.

    A fault of syntax, wherever it is, comes before those of commands.
    """
    fault: CommandFault | None = None
    at = value.find("%")
    while at >= 0:
        part = _PART.match(value, at)
        if part is None:
            shown = value[at : at + SHOWN]
            return CommandFault(f"has a percent sign that begins no command: {shown!r}", is_of_command=False)
        name = part["name"]
        if fault is None and name is not None and name not in added:
            problem = _problem(name, part["given"] or "", part["length"] or "")
            fault = CommandFault(f"has the command {part[0][:SHOWN]}, {problem}", True) if problem else None
        at = value.find("%", part.end())
    return fault


def _problem(name: str, given: str, length: str) -> str:
    if name in PLAIN:
        return "which takes no parameters and no length" if given or length else ""
    if name in OF_HEADERS:
        return (
            "" if _HEADERS.fullmatch(given) else "which needs the name of a header, and may have another one behind ?"
        )
    if name in NEEDING or name in NEEDING_ONLY:
        if not given:
            return "which needs parameters in parentheses"
        return "which takes no length" if length and name in NEEDING_ONLY else ""
    if name in OPTIONAL:
        return "which takes no length" if length else ""
    return "" if name in _OTHER else "which Envoy does not know"
