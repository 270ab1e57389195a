"""The schema is private, lazy, and needs nothing of betterproto2."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import descriptor_pool

from xds.codec import schema
from xds.model.resource_type import V2_URLS, V3_TYPES


def test_every_known_resource_type_is_in_it() -> None:
    for type_url in (*(one.type_url for one in V3_TYPES), *V2_URLS.values()):
        assert schema.message_class(type_url) is not None


@pytest.mark.parametrize("name", ["", "x", "\ud800", "\0", "envoy.config.cluster.v3", "a" * 10_000])
def test_unknown_names(name: str) -> None:
    assert schema.descriptor(name) is None
    assert schema.message_class(f"type.googleapis.com/{name}") is None


def test_an_enum_is_no_message() -> None:
    assert schema.descriptor("envoy.config.cluster.v3.Cluster.LbPolicy") is None


def test_the_default_pool_stays_clean() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("envoy.config.cluster.v3.Cluster")


def test_services_are_there_for_reflection() -> None:
    for name in (
        "envoy.service.discovery.v3.AggregatedDiscoveryService",
        "envoy.service.load_stats.v3.LoadReportingService",
        "envoy.service.status.v3.ClientStatusDiscoveryService",
        "envoy.api.v2.ClusterDiscoveryService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "grpc.channelz.v1.Channelz",
    ):
        assert schema.pool().FindServiceByName(name).methods


def test_using_it_imports_no_generated_envoy_code() -> None:
    program = (
        "import sys; from xds.codec import resources;"
        "resources.decode_document('{\"resources\": []}');"
        "sys.exit(any(name.startswith(('betterproto2', 'envoy', 'pydantic')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_threads_share_one_pool() -> None:
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda _: id(schema.pool()), range(8)))) == 1
