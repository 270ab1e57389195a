"""A server that is cut off from the database, and Envoys that another server has served newer configuration."""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import swap_kinds as kinds
from tests.replicas.site import Replica, ReplicaSite, ReplicaSites
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.envoy import EnvoyProcess
from tests.support.process import wait_until

pytestmark = pytest.mark.soak

REFUSED_FOR_S = 4.0


def is_at(site: ReplicaSite, envoy: EnvoyProcess, replica: Replica) -> bool:
    return site.holder(envoy) is replica


def is_cut_off(replica: Replica) -> bool:
    return "has not answered since" in replica.server.request("GET", "/readyz").json()["detail"]


def refused(replica: Replica) -> int:
    """How many streams the server has turned away for their newer configuration."""
    rows = replica.server.get("/streams/refused")["items"]
    return sum(row["count"] for row in rows if "newer configuration" in str(row))


def is_discovery(stream: dict[str, Any]) -> bool:
    """Streams of load reports, which Envoy opens again after five seconds, are not refused."""
    return "load" not in stream


def test_envoys_are_not_taken_back_by_a_server_that_is_behind(
    tmp_path: Path, background: Background, running: ExitStack
) -> None:
    site = ReplicaSites(tmp_path, background, running).open(
        kinds.routes_move, (Variant.ADS_SOTW, Variant.ADS_DELTA), random.Random()
    )
    behind, *others = all_replicas = site.replicas
    behind.database.cut()
    wait_until(partial(is_cut_off, behind), "the server tells that it is cut off")
    behind.proxies.cut()
    site.replicas = others
    site.push()
    site.wait_newest()
    behind.proxies.restore()
    for other in others:
        other.proxies.cut()
    wait_until(lambda: refused(behind) >= len(site.envoys), "the Envoys are turned away")
    site.settle(REFUSED_FOR_S)
    assert not [each for node in behind.server.nodes().values() for each in node["streams"] if is_discovery(each)]
    site.replicas = all_replicas
    behind.database.restore()
    for envoy in site.envoys:
        wait_until(partial(is_at, site, envoy, behind), f"{envoy.name} is served again")
    for other in others:
        other.proxies.restore()
    site.wait_newest()
    site.push()
    site.wait_newest()
    site.wait_view()
    site.end()
