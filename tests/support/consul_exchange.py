"""Requests to Consul's API for config entries and chains, one after the other, and the answers of a server.

``{index}`` stands for the last X-Consul-Index of the same question, ``{modify}`` for the last ModifyIndex.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

Json = dict[str, Any]

INDEX, KNOWN_LEADER, LAST_CONTACT = "x-consul-index", "x-consul-knownleader", "x-consul-lastcontact"
QUERY_BACKEND = "x-consul-query-backend"
_TRUST_DOMAIN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.consul")

_WAITING = re.compile(r"[?&](?:index|wait)=[^&]*")


@dataclass(frozen=True, slots=True)
class ConsulRequest:
    """One request. ``body`` is sent as JSON, a text unchanged. ``about`` names an intended difference."""

    method: str
    path: str
    body: object = None
    about: str = ""

    @property
    def question(self) -> str:
        """The request without its index and its waiting time."""
        return f"{self.method} {_WAITING.sub('', self.path)} {self.body}"

    def content(self) -> bytes | None:
        """The body as bytes."""
        if self.body is None or isinstance(self.body, str):
            return None if self.body is None else self.body.encode()
        return json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class ConsulAnswer:
    """One answer. ``value`` is the JSON of a success, ``text`` an error; ``index`` is set for reads."""

    status: int
    value: Any = None
    text: str = ""
    index: int | None = None

    def document(self) -> Json:
        """The answer as it is recorded."""
        return {"status": self.status, "value": self.value, "text": self.text, "index": self.index}


Send = Callable[[str, str, bytes | None], Awaitable[tuple[int, Mapping[str, str], bytes]]]


@dataclass
class ConsulPlayer:
    """Sends requests in order; ``send`` gets method, path and body."""

    send: Send
    _indexes: dict[str, int] = field(default_factory=dict)
    _modified: int = 0

    async def play(self, request: ConsulRequest) -> ConsulAnswer:
        """One request and its answer."""
        path = request.path.replace("{index}", str(self._indexes.get(request.question, 0))).replace(
            "{modify}", str(self._modified)
        )
        status, headers, content = await self.send(request.method, path, request.content())
        answer = _answer(status, {name.lower(): value for name, value in headers.items()}, content.decode())
        if answer.index is not None:
            self._indexes[request.question] = answer.index
        if isinstance(answer.value, dict) and "ModifyIndex" in answer.value:
            self._modified = answer.value["ModifyIndex"]
        return answer


def _answer(status: int, headers: Mapping[str, str], text: str) -> ConsulAnswer:
    index = int(headers[INDEX]) if INDEX in headers else None
    if index is not None and QUERY_BACKEND not in headers:  # where Consul streams, it names no leader
        assert (headers[KNOWN_LEADER], headers[LAST_CONTACT]) == ("true", "0")
    if status == 200 and not text:
        return ConsulAnswer(status, index=index)
    if status == 200:
        assert headers["content-type"].startswith("application/json")
        return ConsulAnswer(status, json.loads(_TRUST_DOMAIN.sub("consul", text)), index=index)
    assert not text or headers["content-type"].startswith("text/plain")
    return ConsulAnswer(status, text=text, index=index)


async def play_all(client: httpx.AsyncClient, exchange: Iterable[ConsulRequest]) -> list[ConsulAnswer]:
    """All requests in order, and their answers."""

    async def send(method: str, path: str, body: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        answer = await client.request(method, path, content=body)
        return answer.status_code, answer.headers, answer.content

    player = ConsulPlayer(send)
    return [await player.play(asked) for asked in exchange]


def put(body: object, query: str = "", about: str = "") -> ConsulRequest:
    """A write."""
    return ConsulRequest("PUT", f"/v1/config{query}", body, about)


def get(path: str, about: str = "") -> ConsulRequest:
    """A reading."""
    return ConsulRequest("GET", f"/v1/{path}", about=about)


def delete(path: str, about: str = "") -> ConsulRequest:
    """A deletion."""
    return ConsulRequest("DELETE", f"/v1/config/{path}", about=about)


def post(service: str, body: object, query: str = "", about: str = "") -> ConsulRequest:
    """A chain with overrides."""
    return ConsulRequest("POST", f"/v1/discovery-chain/{service}{query}", body, about)


ROUTER = {
    "Kind": "service-router",
    "Name": "web",
    "Meta": {"owner": "team-web"},
    "Routes": [
        {
            "Match": {
                "HTTP": {
                    "PathPrefix": "/admin",
                    "Header": [{"Name": "x-debug", "Exact": "1"}, {"Name": "x-old", "Present": True, "Invert": True}],
                    "QueryParam": [{"Name": "q", "Regex": "[0-9]+"}],
                    "Methods": ["get", "PUT"],
                }
            },
            "Destination": {
                "Service": "admin",
                "PrefixRewrite": "/",
                "RequestTimeout": "30s",
                "NumRetries": 3,
                "RetryOnConnectFailure": True,
                "RetryOnStatusCodes": [503, 504],
                "RequestHeaders": {"Add": {"x-from": "web"}, "Set": {"x-a": "b"}, "Remove": ["cookie"]},
            },
        },
        {"Match": {"HTTP": {"PathExact": "/cart"}}, "Destination": {"Service": "web", "ServiceSubset": "v2"}},
    ],
}
SNAKE_ROUTER = {
    "kind": "service-router",
    "name": "shop",
    "routes": [
        {"match": {"http": {"path_prefix": "/a"}}, "destination": {"service": "api", "request_timeout": 1500000}}
    ],
}
SPLITTER = {
    "Kind": "service-splitter",
    "Name": "web",
    "Splits": [
        {"Weight": 90.004, "ServiceSubset": "v1"},
        {"Weight": 9.996, "Service": "api", "ResponseHeaders": {"Set": {"x-canary": "1"}}},
    ],
}
RESOLVER = {
    "Kind": "service-resolver",
    "Name": "web",
    "DefaultSubset": "v1",
    "Subsets": {
        "v1": {"Filter": "Service.Meta.version == v1"},
        "v2": {"Filter": "Service.Meta.version == v2", "OnlyPassing": True},
    },
    "Failover": {"v1": {"ServiceSubset": "v2"}, "*": {"Datacenters": ["dc2", "dc3"]}},
    "ConnectTimeout": "15s",
    "LoadBalancer": {
        "Policy": "ring_hash",
        "RingHashConfig": {"MinimumRingSize": 10, "MaximumRingSize": 100},
        "HashPolicies": [{"Field": "cookie", "FieldValue": "c", "CookieConfig": {"TTL": "10s", "Path": "/"}}],
    },
}
HTTP = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
DEFAULTS = {
    "Kind": "service-defaults",
    "Name": "api",
    "Protocol": "HTTP",
    "ExternalSNI": "api.example.org",
    "MeshGateway": {"Mode": "remote"},
    "UpstreamConfig": {
        "Overrides": [{"Name": "db", "Protocol": "tcp", "ConnectTimeoutMs": 100}],
        "Defaults": {"Limits": {"MaxConnections": 3, "MaxPendingRequests": 0}},
    },
}

EXCHANGE: tuple[ConsulRequest, ...] = (
    # Nothing is there
    get("config/service-router"),
    get("config/service-router/web"),
    get("discovery-chain/web"),
    delete("service-router/web"),
    delete("service-router/web?cas=5"),
    # Writes that a chain does not allow, and the same where it does
    put(SPLITTER),
    put(HTTP),
    put(SPLITTER),
    put(RESOLVER),
    put(SPLITTER),
    put(ROUTER),
    put(SNAKE_ROUTER),
    put(DEFAULTS),
    put({"Kind": "service-defaults", "Name": "api", "Protocol": "tcp"}),
    delete("service-resolver/web"),
    delete("proxy-defaults/global"),
    put({"Kind": "service-resolver", "Name": "admin", "Redirect": {"Service": "web"}}),
    put({"Kind": "service-resolver", "Name": "web", "Redirect": {"Service": "admin"}}),
    # Read
    get("config/service-router/web"),
    get("config/service-router/shop"),
    get("config/service-router"),
    get("config/service-splitter/web"),
    get("config/service-resolver/web"),
    get("config/service-defaults/api"),
    get("config/proxy-defaults/global"),
    get("config/service-resolver"),
    get("config/"),
    get("config/service-router/web?dc=dc1"),
    # Chains
    get("discovery-chain/web"),
    get("discovery-chain/shop"),
    get("discovery-chain/admin"),
    get("discovery-chain/api"),
    get("discovery-chain/other"),
    get("discovery-chain/web?compile-dc=dc9"),
    post("web", {}),
    post("web", {"OverrideProtocol": "grpc"}),
    post("web", {"OverrideProtocol": "tcp", "OverrideConnectTimeout": "7s", "OverrideMeshGateway": {"Mode": "local"}}),
    post("api", {"override_connect_timeout": 7_000_000_000, "override_mesh_gateway": {"mode": "local"}}),
    post("other", {"OverrideConnectTimeout": "7s"}, "?compile-dc=dc9"),
    # Compare and set
    put({"Kind": "service-resolver", "Name": "one"}, "?cas=0"),
    put({"Kind": "service-resolver", "Name": "one"}, "?cas=0"),
    put({"Kind": "service-resolver", "Name": "one", "ConnectTimeout": "3s"}, "?cas=0"),
    get("config/service-resolver/one"),
    put({"Kind": "service-resolver", "Name": "one", "ConnectTimeout": "3s"}, "?cas={modify}"),
    put({"Kind": "service-resolver", "Name": "one", "ConnectTimeout": "4s"}, "?cas={modify}"),
    delete("service-resolver/one?cas={modify}"),
    get("config/service-resolver/one"),
    delete("service-resolver/one?cas={modify}"),
    delete("service-resolver/one?cas={modify}"),
    get("config/service-resolver/one"),
    # Waiting
    get("discovery-chain/web?index={index}&wait=20ms"),
    get("config/service-resolver/web?index={index}&wait=20ms"),
    put({"Kind": "service-resolver", "Name": "elsewhere"}),
    get("discovery-chain/web"),
    get("config/service-resolver/web"),
    get("config/service-resolver/one?index=1&wait=1s"),
    # What cannot be read
    put("{"),
    put(""),
    put("[]"),
    put({"Name": "x"}),
    put({"Kind": "frob", "Name": "x"}),
    put({"Kind": "service-router", "Name": "x", "Paths": []}),
    put({"Kind": "service-resolver", "Name": "x", "ConnectTimeout": "soon"}),
    put({"Kind": "service-splitter", "Name": "x", "Splits": [{"Weight": 50}]}),
    put({"Kind": "service-resolver", "Name": "", "ConnectTimeout": "1s"}),
    get("config/frob"),
    get("config/frob/x"),
    delete("frob/x"),
    delete("service-router"),
    ConsulRequest("POST", "/v1/config", {}),
    get("config"),
    ConsulRequest("PUT", "/v1/discovery-chain/web", {}),
    get("discovery-chain/"),
    post("web", ""),
    post("web", {"OverrideMeshGateway": {"Mode": "far"}}),
    post("web", {"OverrideConnectTimeout": "soon"}),
    get("config/service-router/web?index=x"),
    get("config/service-router/web?index=-1"),
    get("config/service-router/web?wait=soon"),
    get("config/service-router/web?stale&consistent"),
    get("config/service-router/web?dc=dc9"),
    get("config/service-router/web?ns=team"),
    get("discovery-chain/web?partition=team"),
    # What differs on purpose
    get("config/service-router/web?ns=default", "default namespace"),
    put({"Kind": "service-resolver", "Name": "x"}, "?cas=x", "cas that is no number"),
    put({"Kind": "mesh"}, about="a kind that is not ours"),
    get("config/mesh", about="a kind that is not ours"),
    post("web", {"OverrideProtocols": "grpc"}, about="unknown override"),
    post("web", {"OverrideProtocol": 1}, about="unknown override"),
    # And away
    delete("service-router/web"),
    delete("service-splitter/web"),
    delete("service-resolver/web"),
    get("discovery-chain/web"),
    get("config/service-splitter"),
)
