"""Texts that not every store can hold, NUL and half of a surrogate pair, at every door: refused with their place.

PostgreSQL stores neither, SQLite stores NUL. So they are refused before a store sees them, and both answer alike. What
a resource contains may have NUL, but not its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.protobuf import json_format

from tests.attack.bystander import GROUP as BYSTANDERS
from tests.attack.conftest import Beside
from tests.attack.raw_http import ask
from tests.support import resources as r
from tests.support.grpc_stream import DELTA, SOTW, GrpcStream, sotw
from tests.support.server import ServerProcess
from xds.codec import schema
from xds.codec.findings import json_pointer
from xds.proto import wire_pb2

LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
WRAPPER = "type.googleapis.com/envoy.service.discovery.v3.Resource"
JSON = {"content-type": "application/json"}
NUL, HALF = "a\0b", "a\ud800b"
# Values that lead to the route, for the parameters of a path that are not attacked.
PLAIN = {"type": "clusters", "kind": "service-resolver", "revision": "1"}
Json = dict[str, Any]
Path = tuple[str | int, ...]


def texts_of(schemas: Json, schema: Json, path: Path = (), within: tuple[str, ...] = ()) -> Iterator[Path]:
    """The paths of all texts in a value of the schema."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        if name not in within:
            yield from texts_of(schemas, schemas[name], path, (*within, name))
        return
    for each in (*schema.get("oneOf", ()), *schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from texts_of(schemas, each, path, within)
    if "string" in schema.get("type", ()) and "format" not in schema:
        yield path
    for key, each in schema.get("properties", {}).items():
        yield from texts_of(schemas, each, (*path, key), within)
    if "items" in schema:
        yield from texts_of(schemas, schema["items"], (*path, 0), within)
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from texts_of(schemas, more, (*path, "key"), within)


def texts_in(value: object, path: Path = ()) -> Iterator[Path]:
    """The paths of all texts in a value."""
    if isinstance(value, str):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from texts_in(each, (*path, key))


def is_content(value: object, path: Path) -> bool:
    """Whether the path leads into a resource."""
    for key in path:
        if isinstance(value, dict) and "@type" in value:
            return True
        members: Any = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
        value = members.get(key)
    return False


def replaced(value: object, path: Path, text: str) -> object:
    """The value with another text at the path, which is made where it is not there."""
    if not path:
        return text
    first, *rest = path
    if isinstance(first, str):
        items = value if isinstance(value, dict) else {}
        return {**items, first: replaced(items.get(first), tuple(rest), text)}
    listed = [*value] if isinstance(value, list) else [None]
    listed[first] = replaced(listed[first], tuple(rest), text)
    return listed


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        if path.startswith("/api/"):
            for method, operation in methods.items():
                yield method.upper(), path, operation


def filled(path: str, parameters: list[Json]) -> str:
    for each in parameters:
        path = path.replace(f"{{{each['name']}}}", PLAIN.get(each["name"], "x"))
    return path


def is_text(parameter: Json) -> bool:
    return any(each.get("type") == "string" for each in (parameter["schema"], *parameter["schema"].get("anyOf", ())))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """It has what the paths of `PLAIN` name."""
    with ServerProcess(tmp_path_factory.mktemp("texts"), ["--store", "memory"]) as started:
        started.push("x", [r.eds_cluster("x"), r.cluster_load_assignment("x", 1)])
        started.push(BYSTANDERS, [r.static_cluster("served")])
        yield started


def accepted(server: ServerProcess) -> int:
    return len(server.get("/audit", refused="false")["items"])


def test_every_parameter_of_every_operation(server: ServerProcess) -> None:
    before, tried = accepted(server), 0
    for method, path, operation in operations(server.get("/openapi.json")):
        parameters = [each for each in operation.get("parameters", ()) if each["in"] in ("path", "query")]
        for each in filter(is_text, parameters):
            name = each["name"]
            target = filled(path.replace(f"{{{name}}}", quote(NUL)), parameters)
            query = f"?{name}={quote(NUL)}" if each["in"] == "query" else ""
            answer = server.request(method, target + query, content=b"{}", headers=JSON)
            tried += 1
            assert answer.status_code == 400, (method, target, query, answer.text)
            (error,) = answer.json()["errors"]
            assert (error["pointer"], error["source"]) == (f"/{name}", each["in"]), (method, target, query, answer.text)
            assert "NUL" in error["detail"]
    assert tried > 150
    assert accepted(server) == before


@pytest.mark.parametrize("bad", [NUL, HALF], ids=["NUL", "half a pair"])
def test_every_text_of_every_body(server: ServerProcess, bad: str) -> None:
    document, before, tried = server.get("/openapi.json"), accepted(server), 0
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        target = filled(path, operation.get("parameters", []))
        example = content.get("example")
        bodies = dict.fromkeys(texts_of(document["components"]["schemas"], content["schema"]))
        bodies |= dict.fromkeys(texts_in(example), example)
        for at, body in bodies.items():
            if bad is NUL and is_content(body, at):
                continue
            sent = json.dumps(replaced(body, at, bad)).encode()
            answer = server.request(method, target, content=sent, headers=JSON)
            tried += 1
            assert answer.status_code == 422, (method, target, at, answer.text)
            assert [each["pointer"] for each in answer.json()["errors"]] == [json_pointer(at)], (target, answer.text)
    assert tried > 90
    assert accepted(server) == before


def pushed(**fields: Any) -> bytes:
    """A snapshot as a DiscoveryResponse with one cluster and one resource of an unknown type."""
    named = message(CLUSTER, {"name": fields.get("name", "c")})
    unknown = wire_pb2.Resource(name=fields.get("wrapped", "w"))
    unknown.resource.type_url = fields.get("type_url", "a/b")
    response = wire_pb2.DiscoveryResponse(version_info=fields.get("version_info", ""))
    response.resources.add(type_url=CLUSTER, value=named)
    response.resources.add(type_url=WRAPPER, value=unknown.SerializeToString())
    return response.SerializeToString()


@pytest.mark.parametrize("at", ["name", "wrapped", "type_url", "version_info"])
def test_a_binary_push(server: ServerProcess, at: str) -> None:
    put = {"method": "PUT", "path": f"/api/v1/groups/binary-{at}/snapshot"}
    protobuf = {"content-type": "application/x-protobuf"}
    refused = server.request(**put, content=pushed(**{at: NUL}), headers=protobuf)
    assert (refused.status_code, len(refused.json()["errors"])) == (422, 1), refused.text
    assert server.request("GET", f"/api/v1/groups/binary-{at}").status_code == 404
    assert server.request(**put, content=pushed(**{at: "a/c"}), headers=protobuf).status_code == 200


@pytest.mark.parametrize("escape", [r"\0", r"\x00", r"\u0000", r"\U00000000"])
def test_the_escapes_of_yaml(server: ServerProcess, escape: str) -> None:
    yaml = f'resources:\n- "@type": {CLUSTER}\n  name: "a{escape}b"\n'
    answer = server.request(
        "PUT", "/api/v1/groups/edge/snapshot", content=yaml, headers={"content-type": "application/yaml"}
    )
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["code"], error["pointer"], error["source"]) == ("encoding", "/name", "3:3")


def test_what_a_resource_contains_may_have_nul_but_not_its_name(server: ServerProcess) -> None:
    """In a snapshot, alone, and in a transaction, written as JSON or YAML."""
    cluster = {"name": "c", "type": "STATIC", "alt_stat_name": NUL}
    typed = {"@type": CLUSTER, **cluster}
    doors: list[tuple[str, str, Any]] = [
        ("PUT", "/api/v1/groups/content/snapshot", {"resources": [typed]}),
        ("PUT", "/api/v1/groups/content/snapshot", [typed]),
        ("PUT", "/api/v1/groups/content/resources/clusters/c", cluster),
        ("POST", "/api/v1/transactions", {"changes": [{"group": "content", "snapshot": {"resources": [typed]}}]}),
    ]
    for method, path, body in doors:
        done = server.request(method, path, content=json.dumps(body), headers=JSON)
        assert done.status_code in (200, 201), (path, done.text)
        (shown,) = server.get("/groups/content/snapshot")["resources"]
        assert shown == typed, path
        named = json.dumps(body).replace('"c"', json.dumps(NUL))
        refused = server.request(method, path, content=named, headers=JSON)
        assert (refused.status_code, "NUL" in refused.text) == (422, True), (path, refused.text)
        typeless = json.dumps(body).replace(CLUSTER, CLUSTER + r"\u0000")
        if typeless != json.dumps(body):
            assert server.request(method, path, content=typeless, headers=JSON).status_code == 422, path


def test_headers(server: ServerProcess) -> None:
    """No HTTP parser accepts a NUL in one."""
    for name in ("Idempotency-Key", "If-Match", "Prefer", "Authorization", "X-Request-ID"):
        head = f"DELETE /api/v1/groups/x/upstreams HTTP/1.1\r\nHost: localhost\r\n{name}: {NUL}\r\n\r\n"
        assert ask(server.http_port, head.encode()) == 400


CONSUL_BODIES: dict[str, Json] = {
    "/v1/agent/service/register": {
        "Name": "web",
        "ID": "web-1",
        "Address": "10.0.0.1",
        "Port": 80,
        "Tags": ["t"],
        "Meta": {"k": "v"},
        "Check": {"TTL": "10s", "Notes": "n", "Name": "c", "CheckID": "c"},
    },
    "/v1/agent/check/register": {"Name": "c", "ID": "c", "ServiceID": "web-1", "TTL": "10s", "Notes": "n"},
    "/v1/agent/check/update/c": {"Status": "passing", "Output": "o"},
    "/v1/catalog/register": {
        "Node": "n",
        "Address": "10.0.0.2",
        "NodeMeta": {"k": "v"},
        "Service": {"Service": "db", "ID": "db-1", "Port": 80, "Tags": ["t"]},
        "Check": {"CheckID": "d", "Name": "d", "Status": "passing", "Notes": "n", "Output": "o"},
    },
    "/v1/catalog/deregister": {"Node": "n", "ServiceID": "db-1"},
    "/v1/config": {"Kind": "service-resolver", "Name": "web", "DefaultSubset": "", "Meta": {"k": "v"}},
}
CONSUL_PATHS = (
    "/v1/agent/service/deregister/{}",
    "/v1/agent/service/maintenance/web-1?enable=true&reason={}",
    "/v1/agent/check/deregister/{}",
    "/v1/agent/check/pass/{}",
    "/v1/agent/check/fail/c?note={}",
)


def test_every_text_of_consuls_paths(server: ServerProcess) -> None:
    for path, body in CONSUL_BODIES.items():
        for at in texts_in(body):
            for bad in (NUL, HALF):
                sent = json.dumps(replaced(body, at, bad)).encode()
                answer = server.request("PUT", path, content=sent)
                # Consul answers 500 to config entries that break a rule: its clients look for that.
                assert answer.status_code in ((500,) if path == "/v1/config" else (400, 422)), (path, at, answer.text)
                assert f"{json_pointer(at)}: a text with" in answer.text, (path, at, answer.text)
        done = server.request("PUT", path, json=body)
        assert done.status_code == 200, (path, done.text)
    for path in CONSUL_PATHS:
        answer = server.request("PUT", path.format(quote(NUL)))
        assert (answer.status_code, "a text with the character NUL" in answer.text) == (400, True), (path, answer.text)


MARK = "@@@"  # three bytes, as many as those below
NO_TEXTS = (b"a\0b", b"\xed\xa0\x80")  # a NUL; half of a surrogate pair, which is no UTF-8


def message(type_url: str, value: Json) -> bytes:
    """A message of Envoy's API, serialized."""
    return json_format.ParseDict(value, schema.require(type_url)()).SerializeToString()


NODE: Json = {
    "id": "{id}",
    "cluster": "x",
    "locality": {"region": "r", "zone": "z"},
    "metadata": {"k": "v", "list": ["w"]},
    "user_agent_name": "agent",
    "user_agent_version": "1",
}
REQUESTS: dict[str, tuple[str, Json]] = {
    SOTW: (
        "envoy.service.discovery.v3.DiscoveryRequest",
        {"node": NODE, "type_url": CLUSTER, "resource_names": ["x"], "version_info": "1", "response_nonce": "n"},
    ),
    DELTA: (
        "envoy.service.discovery.v3.DeltaDiscoveryRequest",
        {
            "node": NODE,
            "type_url": CLUSTER,
            "resource_names_subscribe": ["x"],
            "resource_names_unsubscribe": ["y"],
            "initial_resource_versions": {"x": "1"},
            "response_nonce": "n",
        },
    ),
    LRS: (
        "envoy.service.load_stats.v3.LoadStatsRequest",
        {
            "node": NODE,
            "cluster_stats": [
                {
                    "cluster_name": "x",
                    "cluster_service_name": "x",
                    "upstream_locality_stats": [
                        {
                            "locality": {"zone": "z"},
                            "total_issued_requests": 1,
                            "load_metric_stats": [{"metric_name": "m"}],
                        }
                    ],
                    "dropped_requests": [{"category": "c", "dropped_count": 1}],
                    "total_dropped_requests": 1,
                }
            ],
        },
    ),
}
VIEWS = ("/api/v1/nodes", "/api/v1/nacks", "/api/v1/load", "/api/v1/streams/refused", "/api/v1/check", "/metrics")


def look(server: ServerProcess) -> None:
    """Everything that people see of proxies can be shown."""
    for path in (*VIEWS, *(f"/api/v1/nodes/{quote(node)}" for node in server.nodes())):
        assert server.request("GET", path).status_code == 200, path


@pytest.mark.parametrize("method", REQUESTS)
def test_every_text_of_a_stream(server: ServerProcess, beside: Beside, method: str) -> None:
    """Its client is refused or served; nobody else notices."""
    name, request = REQUESTS[method]
    with beside(server):
        for number, at in enumerate(texts_in(request)):
            for bad in NO_TEXTS:
                value = replaced(request, ("node", "id"), f"node-{number}")
                sent = message(name, replaced(value, at, MARK)).replace(MARK.encode(), bad)  # type: ignore[arg-type]
                with GrpcStream(server.grpc_port, method, deadline_s=1.0) as stream:
                    stream.send(sent)
                    with suppress(grpc.RpcError):
                        stream.receive()
        look(server)


@pytest.mark.parametrize("bad", NO_TEXTS)
def test_the_words_of_a_nack(server: ServerProcess, bad: bytes) -> None:
    with GrpcStream(server.grpc_port) as stream:
        first = stream.send(sotw(CLUSTER, node_id="nacking", cluster="x")).receive()
        nack = {"type_url": CLUSTER, "response_nonce": first.nonce, "error_detail": {"code": 3, "message": MARK}}
        stream.send(message("envoy.service.discovery.v3.DiscoveryRequest", nack).replace(MARK.encode(), bad))
        with suppress(grpc.RpcError):
            GrpcStream(server.grpc_port, deadline_s=0.5).receive()
    look(server)


def test_every_text_of_a_poll(server: ServerProcess) -> None:
    """JSON can say half of a pair in UTF-8 and UTF-16 as well, which `json.loads` accepts."""
    body: Json = {"node": {**NODE, "id": "polls"}, "resource_names": ["x"]}
    typed = json.dumps({"@type": "a/b", "node": {"id": NUL, "metadata": {"@type": "a/b", "k": NUL}}})
    answer = server.request("POST", "/v3/discovery:clusters", content=typed, headers=JSON)
    assert (answer.status_code, "NUL" in answer.text) == (400, True), "a node is no resource, whatever it has"
    for at in texts_in(body):
        for bad in (NUL, HALF):
            written = json.dumps(replaced(body, at, bad))
            raw = json.dumps(replaced(body, at, bad), ensure_ascii=False)
            forms = [written.encode(), raw.encode("utf-8", "surrogatepass"), raw.encode("utf-16", "surrogatepass")]
            for sent in forms:
                answer = server.request("POST", "/v3/discovery:clusters", content=sent, headers=JSON)
                assert answer.status_code == 400, (at, sent, answer.text)
    assert server.request("POST", "/v3/discovery:clusters", json=body).status_code == 200
    look(server)
