"""State of every kind for a server to keep over an upgrade, and what the server answers about it.

``python -m tests.e2e.release_state DIRECTORY`` makes the files of `test_upgrade` by the server of the present commit.
Do it at the last commit before a change of what is stored, and put the files into a folder named after that commit.
"""

from __future__ import annotations

import base64
import json
import lzma
import sqlite3
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.support import resources as r
from tests.support.grpc_stream import DELTA, SOTW, GrpcStream, delta, sotw, sotw_ack
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from xds.proto import wire_pb2

Json = dict[str, Any]

GROUPS = ("web", "edge", "nacking", "mesh")
WEB, NACKING, MESH = "web-1", "nacking-1", "mesh-1"  # nodes of the groups
UPSTREAM_PORT = 18_001  # nothing listens there
TOKEN = "root"
METADATA = (("authorization", f"Bearer {TOKEN}"),)
FAR_S = 4_102_444_800.0  # the year 2100
WRITTEN_S = 2.0  # what is observed is written at most a second later
TYPE_URLS = {
    "clusters": r.CLUSTER_TYPE,
    "endpoints": r.ENDPOINT_TYPE,
    "listeners": r.LISTENER_TYPE,
    "routes": r.ROUTE_TYPE,
}
SERVED = {WEB: tuple(TYPE_URLS), MESH: tuple(TYPE_URLS)}
MESH_CLUSTERS = [f"{name}.default.dc1.internal.consul" for name in ("cart", "v1.shop", "v2.shop")]
MESH_ROUTE = "shop"
NAMES = {
    WEB: {"endpoints": ["c1", "bound", "hand"], "routes": ["web"]},
    MESH: {"endpoints": MESH_CLUSTERS, "routes": [MESH_ROUTE]},
}
# Fields of what is not stored: who is connected, and since when the process has it.
VOLATILE = ("nodes", "synced", "connected", "since", "age_s", "started_at", "streams")
CONFIG = """\
store: {kind: sqlite, keep_revisions: 100, keep_days: 36500}
order: {endpoint_drain_s: 3600, removal_delay_s: 1, listener_drain_s: 1}
auth:
  token_sha256: [4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2]  # root
  tokens:
    - name: team-edge
      sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b  # secret
      scopes: [read, "write:group/edge*", xds]
metrics: {kept_s: 0}
"""
ENTRIES: list[Json] = [
    {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}},
    {
        "Kind": "service-router",
        "Name": "shop",
        "Routes": [{"Match": {"HTTP": {"PathPrefix": "/cart"}}, "Destination": {"Service": "cart", "NumRetries": 2}}],
    },
    {
        "Kind": "service-splitter",
        "Name": "shop",
        "Splits": [{"Weight": 90, "ServiceSubset": "v1"}, {"Weight": 10, "ServiceSubset": "v2"}],
    },
    {
        "Kind": "service-resolver",
        "Name": "shop",
        "Subsets": {"v1": {"Filter": "Service.Meta.version == v1"}, "v2": {"Filter": "Service.Meta.version == v2"}},
    },
]


# Filling


def fill(server: ServerProcess) -> None:
    """Groups, entries, instances, bindings, policies, endpoints set by hand, drains, a NACK, and their audit."""
    _fill_entries(server)
    _fill_groups(server)
    _fill_assignments(server)
    _fill_nack(server)


def _fill_entries(server: ServerProcess) -> None:
    for number, version in enumerate(("v1", "v2", "v2"), 1):
        _register(server, f"shop-{number}", "shop", number, version=version)
    _register(server, "cart-1", "cart", 10)
    _ask(server, "POST", "/api/v1/config-entries", ENTRIES)
    moved = {**ENTRIES[2], "Splits": [{"Weight": 50, "ServiceSubset": each} for each in ("v1", "v2")]}
    _ask(server, "POST", "/api/v1/config-entries?author=Anna&message=half", [moved])
    upstreams = {"service": "front", "upstreams": [{"service": "shop", "bind_port": 18_100}]}
    _ask(server, "PUT", "/api/v1/groups/mesh", {"selector": f'node.id == "{MESH}"', "priority": 3})
    _ask(server, "PUT", "/api/v1/groups/mesh/upstreams", upstreams)


def _fill_groups(server: ServerProcess) -> None:
    clusters = [r.eds_cluster("bound"), r.steered_cluster("hand")]
    hand = r.zoned_load_assignment("hand", {"za": [1], "zb": [2]})
    server.push("web", r.web_resources("c1", 1), version="first")
    server.push("web", [*r.web_resources("c1", UPSTREAM_PORT), *clusters, hand], author="Anna", message="all of it")
    _ask(server, "PUT", "/api/v1/groups/web", {"selector": f'node.id == "{WEB}"', "priority": 7})
    secret = r.tls_secret("s", r.CERTIFICATE_PEM, r.KEY_PEM)
    server.push("edge", [r.static_cluster("a", 1_000), secret], version="1.0")
    server.push("edge", [r.static_cluster("a", 1_001), secret])
    _ask(server, "POST", "/api/v1/groups/edge/rollback", {"to": 1})
    _ask(server, "PUT", "/api/v1/groups/edge", {"on_nack": "proceed", "removal_delay_s": 3})
    server.push("gone", [r.static_cluster("a", 1_000)])
    _ask(server, "DELETE", "/api/v1/groups/gone?allow_empty=true")


def _fill_assignments(server: ServerProcess) -> None:
    binding = "/api/v1/groups/web/bindings/bound"
    _ask(server, "PUT", binding, {"service": "shop"})
    _ask(server, "PUT", binding, {"service": "shop", "filter": "Service.Meta.version == v2"})
    endpoints = [*r.zone_endpoints(3)["lb_endpoints"]]
    by_hand = {"cluster_name": "c1", "endpoints": [{**r.zone_endpoints(UPSTREAM_PORT), "lb_endpoints": endpoints}]}
    _ask(server, "PUT", "/api/v1/groups/web/endpoints/c1", by_hand)
    policy = {"capacity": {"rates": [{"per_locality_rps": 100}]}}
    _ask(server, "PUT", "/api/v1/groups/web/assignments/hand", policy)
    forbidden = {"authorization": "Bearer secret"}
    refused = server.request("DELETE", "/api/v1/groups/web", headers=forbidden)
    assert refused.status_code == 403


def _fill_nack(server: ServerProcess) -> None:
    good, bad = r.static_cluster("good", 1), r.refused_cluster("bad")
    server.push("nacking", [good])
    with GrpcStream(server.grpc_port, metadata=METADATA) as stream:
        first = stream.send(sotw(r.CLUSTER_TYPE, node_id=NACKING, cluster="nacking")).receive()
        server.push("nacking", [good, bad])
        second = stream.send(sotw_ack(first)).receive()
        message = "Error adding/updating cluster(s) bad: malformed IP address: not-an-ip"
        error = wire_pb2.Status(code=13, message=message)
        nack = wire_pb2.DiscoveryRequest(
            type_url=r.CLUSTER_TYPE,
            version_info=first.version_info,
            response_nonce=second.nonce,
            error_detail=error,
        )
        stream.send(nack.SerializeToString())
        wait_until(lambda: server.nacks(node=NACKING), "the NACK is recorded")


def _register(server: ServerProcess, id: str, service: str, port: int, **meta: str) -> None:
    definition = {"ID": id, "Name": service, "Address": "127.0.0.1", "Port": port, "Meta": meta}
    _ask(server, "PUT", "/v1/agent/service/register", definition)


def _ask(server: ServerProcess, method: str, path: str, body: object = None) -> None:
    answer = server.request(method, path, json=body)
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"


# Reading


def picture(server: ServerProcess) -> Json:
    """What the API answers about all of it, without what changes by itself."""
    paths = ["/groups", "/config-entries", "/config-entries/revisions", "/discovery-chains/shop", "/registrations"]
    paths += [f"/groups/{group}/revisions" for group in GROUPS]
    found = {path: _items(server.get(path)) for path in paths}
    for group in GROUPS:
        snapshot = server.request("GET", f"/api/v1/groups/{group}/snapshot?show_secrets=true")
        if snapshot.status_code != 404:
            found[f"/groups/{group}/snapshot"] = snapshot.json()
    found["/groups/mesh/upstreams"] = server.get("/groups/mesh/upstreams")
    binding = server.get("/groups/web/bindings/bound")
    found["/binding"] = {name: binding[name] for name in ("etag", "service", "filter")}
    found["/endpoints"] = [
        _live(each) for group in GROUPS for each in server.get(f"/groups/{group}/endpoints")["items"]
    ]
    found["/policy"] = server.get("/groups/web/assignments/hand")["policy"]
    found["/audit"] = _items(server.get("/audit"))
    found["/nacks"] = [
        {name: each[name] for name in ("id", "node", "message", "first", "count", "guilty", "state")}
        for each in server.nacks(node=NACKING)
    ]
    return {path: _lasting(value) for path, value in found.items()}


def served(server: ServerProcess) -> Json:
    """What REST xDS answers to the nodes."""
    return {
        f"{node} {word}": server.request(
            "POST",
            f"/v3/discovery:{word}",
            json={"node": {"id": node}, "resource_names": NAMES[node].get(word, [])},
        ).json()
        for node, words in SERVED.items()
        for word in words
    }


def _live(item: Json) -> Json:
    """An assignment that replaces a pushed one; the store does not have who made its binding, and when."""
    return {name: item[name] for name in ("group", "name", "etag", "endpoints_n", "draining_n", "version", "leaving")}


def _items(answer: Any) -> Any:
    return answer["items"] if isinstance(answer, dict) and "items" in answer else answer


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if key not in VOLATILE}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def lost(then: Any, now: Any, at: str = "") -> Iterator[str]:
    """What was answered then and is not answered now: the path, both values. Answers may have more fields now."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key, value in then.items():
            yield from lost(value, now.get(key), f"{at}/{key}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (value, other) in enumerate(zip(then, now, strict=True)):
            yield from lost(value, other, f"{at}/{number}")
    elif then != now:
        yield f"{at}: {then!r}, now {now!r}"


# What an Envoy is sent


def sent(server: ServerProcess) -> Json:
    """The first responses to the Envoy of the group ``web``, by method and type, in base64."""
    return {method: dict(_responses(server, method)) for method in (SOTW, DELTA)}


def _responses(server: ServerProcess, method: str) -> Iterator[tuple[str, str]]:
    request = delta if method == DELTA else sotw
    for alias in SERVED[WEB]:
        type_url = TYPE_URLS[alias]
        with GrpcStream(server.grpc_port, method, metadata=METADATA) as stream:
            response = stream.send(request(type_url, NAMES[WEB].get(alias, []), WEB, "web")).receive()
        yield type_url, base64.b64encode(response.SerializeToString()).decode()


# The files


def main(folder: Path) -> None:
    """Make the files."""
    folder.mkdir(parents=True)
    (folder / "xds.yaml").write_text(CONFIG)
    with tempfile.TemporaryDirectory() as directory:
        server = ServerProcess(Path(directory), ["--config", str(folder / "xds.yaml")], token=TOKEN, forked=False)
        with server:
            fill(server)
            time.sleep(WRITTEN_S)
            expected = {"state": picture(server), "served": served(server), "sent": sent(server)}
            backup = server.request("GET", "/api/v1/backup").content
        _postpone_drains(server.data / "xds.sqlite3")
        with tarfile.open(folder / "data.tar.xz", "w:xz") as archive:
            for path in sorted(server.data.iterdir()):
                archive.add(path, path.name, filter=_anonymous)
    (folder / "backup.tar.xz").write_bytes(lzma.compress(backup))
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


def _postpone_drains(path: Path) -> None:
    """Let what drains drain for decades: a draining endpoint is in the versions that are compared."""
    with closing(sqlite3.connect(path)) as store:
        for table in ("observed", "doc"):
            for rowid, body in store.execute(f"SELECT rowid, body FROM {table}").fetchall():
                store.execute(f"UPDATE {table} SET body = ? WHERE rowid = ?", (_postponed(body), rowid))
        store.commit()


def _postponed(body: bytes) -> bytes:
    """A stored record whose endpoints drain until `FAR_S`."""
    document = json.loads(body)
    if isinstance(document, list):  # of a binding: a row for each endpoint, which ends with the time
        document = [[*row[:-1], FAR_S] for row in document]
    elif document.get("draining"):
        document["draining"] = [{**one, "until_s": FAR_S} for one in document["draining"]]
    else:
        return body
    return json.dumps(document).encode()


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main(Path(sys.argv[1]))
