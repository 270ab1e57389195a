"""The codec: CPU of reading a pushed resource, and its ratio to bare JSON parsing and to google.protobuf's own parser.

    python -m bench.codec [--resources 10000] [--endpoints 1000] [--rounds 5]

Rows: a cluster, a listener with an HTTP connection manager, one assignment of N endpoints, and a document of M
resources (half clusters, half assignments of three endpoints). The best of the rounds counts.

* ``us/resource``: CPU per resource;
* ``/json``: the ratio to ``json.loads`` of the same text;
* ``/json_format``: the ratio to ``json.loads`` and ``json_format.ParseDict`` with serialization, which checks nothing
  and finds no references;
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from google.protobuf import json_format

from bench.pushes import cluster, snapshot
from xds.codec import schema
from xds.codec.naming import TYPE_KEY
from xds.codec.resources import ResourceDecoder
from xds.model.resource_type import ENDPOINT, LISTENER, TYPE_PREFIX

_FILTERS = "envoy.extensions.filters"
_REPEATS = 200  # of a single resource, so that a round is long enough to be measured


def listener() -> dict[str, Any]:
    router = {"name": "router", "typed_config": {TYPE_KEY: f"{TYPE_PREFIX}{_FILTERS}.http.router.v3.Router"}}
    routes = [{"match": {"prefix": f"/{index}"}, "route": {"cluster": f"cluster-{index}"}} for index in range(5)]
    manager = {
        TYPE_KEY: f"{TYPE_PREFIX}{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "http_filters": [router],
        "route_config": {"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": routes}]},
    }
    filters = [{"name": "hcm", "typed_config": manager}]
    address = {"socket_address": {"address": "0.0.0.0", "port_value": 10000}}
    return {TYPE_KEY: LISTENER, "name": "l", "address": address, "filter_chains": [{"filters": filters}]}


def assignment(endpoints: int) -> dict[str, Any]:
    members = [
        {"endpoint": {"address": {"socket_address": {"address": f"10.{n >> 8}.{n & 255}.1", "port_value": 80}}}}
        for n in range(endpoints)
    ]
    return {TYPE_KEY: ENDPOINT, "cluster_name": "c", "endpoints": [{"lb_endpoints": members}]}


def cpu_s(rounds: int, repeats: int, call: Callable[[], object]) -> float:
    """The least CPU time of a call."""
    call()
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(repeats):
            call()
        best = min(best, (time.process_time() - started) / repeats)
    return best


def parse_all(text: bytes) -> None:
    for value in json.loads(text)["resources"]:
        message = schema.require(value.pop(TYPE_KEY).rpartition("/")[2])()
        json_format.ParseDict(value, message, descriptor_pool=schema.pool())
        message.SerializeToString(deterministic=True)


def report(row: str, text: bytes, rounds: int, repeats: int) -> None:
    resources, decoder = len(json.loads(text)["resources"]), ResourceDecoder()
    decode_s = cpu_s(rounds, repeats, lambda: decoder.document(text, "json"))
    bare_s = cpu_s(rounds, repeats, lambda: json.loads(text))
    google_s = cpu_s(rounds, repeats, lambda: parse_all(text))
    print(
        f"{row:12} {decode_s * 1e6 / resources:12.1f} {decode_s / bare_s:10.2f} {decode_s / google_s:12.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resources", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"document of {arguments.resources} resources, assignment of {arguments.endpoints} endpoints; CPU time")
    print(f"{'variant':12} {'us/resource':>12} {'/json':>10} {'/json_format':>12}")
    singles = {"cluster": cluster(0), "listener": listener(), "assignment": assignment(arguments.endpoints)}
    for row, value in singles.items():
        repeats = _REPEATS if row != "assignment" else 1
        report(row, json.dumps({"resources": [value]}).encode(), arguments.rounds, repeats)
    report("document", snapshot(arguments.resources, 0), arguments.rounds, 1)


if __name__ == "__main__":
    main()
