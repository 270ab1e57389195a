"""Config sources of ADS, and real Envoys whose bootstrap has no ``ads_config``: what is warned of is rejected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support import resources as r
from tests.support.bootstrap import Variant
from tests.support.commands import xds
from tests.support.envoy import EnvoyProcess, wait_body
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

REJECTED = "cluster_manager.cds.update_rejected"  # what leads to the cluster is held on streams

Connect = Callable[..., EnvoyProcess]


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The server that modules like this one share."""
    shared_server.begin_anew()
    return shared_server


@pytest.mark.parametrize("variant", [Variant.SPLIT_SOTW, Variant.REST])
def test_a_push_warns_of_sources_that_envoys_without_ads_reject(
    server: ServerProcess, connect: Connect, upstream: Callable[[str], Upstream], variant: Variant
) -> None:
    port = upstream("a").port
    assert server.push(server.group, [r.static_cluster("before", 80)])["warnings"] == []
    envoy = connect(variant).wait_live()
    by_ads = r.web_resources("c1", port, source=r.ADS)
    for query in ({"dry_run": "true"}, {}):
        [warning] = server.push(server.group, by_ads, **query)["warnings"]
        assert warning["code"] == "no_ads" and warning["detail"].startswith(
            f"1 node of the group takes clusters or listeners without ADS ({server.node})"
        )
    wait_until(lambda: envoy.stat(REJECTED) > 0, "the rejection")
    by_own = r.web_resources("c2", port, source=variant.config_source)
    assert server.push(server.group, by_own)["warnings"] == []
    wait_body(envoy.wait_listener("web"), "a")


def test_a_push_to_envoys_on_ads_is_not_warned_of(
    server: ServerProcess, connect: Connect, upstream: Callable[[str], Upstream]
) -> None:
    server.push(server.group, [])
    envoy = connect(Variant.ADS_DELTA).wait_live()
    assert server.push(server.group, r.web_resources("c1", upstream("a").port, source=r.ADS))["warnings"] == []
    wait_body(envoy.wait_listener("web"), "a")
    assert envoy.stat(REJECTED) == 0


@pytest.mark.parametrize("mode", ["ads", "ads-delta", "split", "split-delta", "rest"])
def test_validate_says_whether_a_snapshot_fits_a_bootstrap(tmp_path: Path, mode: str) -> None:
    """Of each mode of ``xds bootstrap``; the sources that the bootstrap has itself always fit."""
    assert xds("bootstrap", "--mode", mode, "-o", tmp_path / "envoy.yaml").code == 0
    bootstrap = yaml.safe_load((tmp_path / "envoy.yaml").read_text())
    own = bootstrap["dynamic_resources"]["cds_config"]
    for name, source in (("ads", r.ADS), ("own", own)):
        document = {"resources": r.web_resources("c1", 80, source=source)}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        assert xds("validate", tmp_path / f"{name}.yaml").code == 0, "without a bootstrap nothing is known"
    check = ("--bootstrap", tmp_path / "envoy.yaml")
    assert xds("validate", tmp_path / "own.yaml", *check).code == 0
    done = xds("validate", tmp_path / "ads.yaml", *check)
    if mode.startswith("ads"):
        assert done.code == 0
        return
    assert done.code == 3 and done.err.startswith("xds: 1 error, 0 warnings")
    place, rest = done.out.split(": error: ")
    assert place.startswith(f"{tmp_path}/ads.yaml:") and rest.startswith("clusters/c1: ")
    assert "the bootstrap has no ads_config, so Envoy rejects what is named by ADS (and 1 more)" in rest
