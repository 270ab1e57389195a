"""The context token of a request: the proxy's statement about itself. It is a claim, not an identity.

Linkerd sends ``{"ns": ..., "nodeName": ..., "pod": ...}``, and sent ``ns:NAMESPACE`` before. Without Kubernetes the
token is a text from the proxy's environment; the further keys are for that case.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from xds.model.node import Locality, Node

TOKEN_BYTES = 4096
VALUE_CHARACTERS = 255
USER_AGENT = "linkerd2-proxy"
_LEGACY = "ns:"
_SURROGATE = re.compile("[\ud800-\udfff]")
# The keys of a token by its fields.
_KEYS = {"namespace": "ns", "node_name": "nodeName"} | {
    name: name for name in ("pod", "id", "cluster", "region", "zone", "sub_zone")
}


@dataclass(frozen=True, slots=True)
class ContextToken:
    """The claims of a proxy, empty where it makes none. ``ignored`` says why parts of it are not used."""

    namespace: str = ""
    node_name: str = ""
    pod: str = ""
    id: str = ""
    cluster: str = ""
    region: str = ""
    zone: str = ""
    sub_zone: str = ""
    ignored: str = ""

    @property
    def locality(self) -> Locality:
        """The locality that the proxy claims."""
        return Locality(self.region, self.zone, self.sub_zone)


NO_TOKEN = ContextToken()


def read_token(text: str) -> ContextToken:
    """The token of a request. Unusable parts are left out, with the reason in ``ignored``. It raises nothing."""
    stripped = text.strip()
    if not stripped:
        return NO_TOKEN
    if len(text) > TOKEN_BYTES:
        return ContextToken(ignored=f"longer than {TOKEN_BYTES} characters")
    if stripped.startswith(_LEGACY):
        return ContextToken(namespace=stripped.removeprefix(_LEGACY)[:VALUE_CHARACTERS])
    try:
        document = json.loads(stripped)
    except (ValueError, RecursionError):
        return ContextToken(ignored="not valid JSON")
    if not isinstance(document, dict):
        return ContextToken(ignored="not a JSON object")
    wrong = [key for key in _KEYS.values() if not _is_usable(document.get(key, ""))]
    values = {name: document[key] for name, key in _KEYS.items() if key in document and key not in wrong}
    return ContextToken(**values, ignored=f"{', '.join(wrong)}: expected short strings" if wrong else "")


def _is_usable(value: object) -> bool:
    """Whether a value is a short text. JSON can have lone surrogates (``"\\ud800"``), which cannot be encoded."""
    return isinstance(value, str) and len(value) <= VALUE_CHARACTERS and not _SURROGATE.search(value)


def node_of(token: ContextToken, peer: str, locality: Locality) -> Node:
    """The proxy as a node, for groups and node authorisation.

    Its id is ``id``, else the pod in its namespace, else the address of its connection. Its cluster is ``cluster``,
    else its namespace. ``peer`` is the client's address as gRPC writes it.
    """
    pod = f"{token.pod}.{token.namespace}" if token.pod and token.namespace else token.pod
    claims = {"ns": token.namespace, "nodeName": token.node_name, "pod": token.pod}
    return Node(
        token.id or pod or f"linkerd@{_host(peer)}",
        token.cluster or token.namespace,
        locality,
        {name: value for name, value in claims.items() if value},
        user_agent=USER_AGENT,
        user_agent_name=USER_AGENT,
    )


def _host(peer: str) -> str:
    """The host of ``ipv4:10.0.0.1:4711`` or ``ipv6:[::1]:4711``."""
    return peer.partition(":")[2].rpartition(":")[0].strip("[]") or peer
