"""More EDS clusters than `limits.names_per_request`: a client gets all, in each protocol and when it returns."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tests.support import resources as r
from tests.support.grpc_stream import DELTA, SOTW, GrpcStream, delta, sotw
from tests.support.process import LOOPBACK
from tests.support.server import GROUP, ServerProcess
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.proto import wire_pb2

CLUSTERS = 25_000
NAMES = [f"cluster-{number:05}" for number in range(CLUSTERS)]
EDS = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"


@pytest.fixture(scope="module")
def many_clusters(shared_server: ServerProcess) -> ServerProcess:
    """A server with all clusters and their assignments."""
    made = [*(r.eds_cluster(name) for name in NAMES), *(r.cluster_load_assignment(name, 1) for name in NAMES)]
    shared_server.push(GROUP, made)
    return shared_server


@pytest.mark.parametrize("method", [SOTW, EDS], ids=["ads", "eds"])
def test_many_names_are_served_in_sotw(many_clusters: ServerProcess, method: str) -> None:
    with GrpcStream(many_clusters.grpc_port, method) as stream:
        if method == SOTW:
            stream.send(sotw(CLUSTER))
            assert len(stream.receive().resources) == CLUSTERS
        stream.send(sotw(ENDPOINT, NAMES))
        assert len(stream.receive().resources) == CLUSTERS


def test_many_names_are_served_in_delta_and_shown_by_a_returning_client(many_clusters: ServerProcess) -> None:
    with GrpcStream(many_clusters.grpc_port, DELTA) as stream:
        stream.send(delta(ENDPOINT, NAMES))
        versions = {each.name: each.version for each in stream.receive().resources}
        assert len(versions) == CLUSTERS
    request = wire_pb2.DeltaDiscoveryRequest.FromString(delta(ENDPOINT, NAMES))
    request.initial_resource_versions.update(versions)
    with GrpcStream(many_clusters.grpc_port, DELTA) as stream:
        stream.send(delta(CLUSTER), request.SerializeToString())
        assert len(stream.receive().resources) == CLUSTERS
        assert stream.receive().type_url == ENDPOINT  # sent behind clusters that may warm


def test_many_names_are_served_to_a_poll(many_clusters: ServerProcess) -> None:
    body = json.dumps({"node": {"id": "poller", "cluster": GROUP}, "resource_names": NAMES}).encode()
    url = f"http://{LOOPBACK}:{many_clusters.http_port}/v3/discovery:endpoints"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert len(json.load(answer)["resources"]) == CLUSTERS
