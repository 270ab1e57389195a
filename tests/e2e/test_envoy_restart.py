"""The server restarts: no request is lost, and no Envoy is disturbed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import Variant, in_variants
from tests.support.envoy import EnvoyProcess, wait_body
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

GROUP = "test"
NODE = "envoy-1"
LOAD_RPS = 300  # what is left of the machine is for the server that starts
# Counters that move when Envoy builds or drops something.
REBUILDS = r"^(cluster_manager\.cluster_|listener_manager\.listener_)(added|modified|removed|updated)"

Connect = Callable[..., EnvoyProcess]
StartUpstream = Callable[[str], Upstream]

# The long tests repeat this in the other variants.
QUICK = {(Variant.ADS_SOTW, "sigterm"), (Variant.ADS_DELTA, "kill"), (Variant.SPLIT_SOTW, "kill")}
restarts = pytest.mark.parametrize(
    ("variant", "end"),
    [
        pytest.param(
            variant,
            end,
            id=f"{variant.value}-{name}",
            marks=[] if (variant, name) in QUICK else pytest.mark.soak,
        )
        for variant in Variant
        if variant is not Variant.REST
        for name, end in (("sigterm", ServerProcess.stop), ("kill", ServerProcess.kill))
    ],
)


@restarts
def test_restart_disturbs_nobody(
    server: ServerProcess,
    connect: Connect,
    upstream: StartUpstream,
    background: Background,
    running: ExitStack,
    variant: Variant,
    end: Callable[[ServerProcess], object],
) -> None:
    a, b = upstream("a"), upstream("b")
    server.push(GROUP, r.web_resources("c1", a.port, source=variant.config_source))
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    server.wait_synced(GROUP, NODE)
    versions, built = server.versions(GROUP), envoy.stats(REBUILDS)
    load = running.enter_context(HttpLoad(background, port, rps=LOAD_RPS))
    load.wait_total(200)
    end(server)
    load.wait_total(200)
    server.start()
    assert server.versions(GROUP) == versions
    server.wait_synced(GROUP, NODE)
    load.wait_total(200)
    assert envoy.stats(REBUILDS) == built
    server.push(GROUP, r.web_resources("c1", b.port, source=variant.config_source))
    load.wait_body("b")
    report = load.stop()
    assert (report.failed, report.samples) == (0, [])


def test_sigterm_ends_with_success(server: ServerProcess, connect: Connect, upstream: StartUpstream) -> None:
    server.push(GROUP, r.web_resources("c1", upstream("a").port))
    connect(Variant.ADS_DELTA).wait_live()
    assert server.stop() == 0


@in_variants(Variant.ADS_DELTA, others=[Variant.ADS_SOTW])
def test_every_acknowledged_push_survives_kill(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    names = [f"u{turn}" for turn in range(3)]
    first = upstream(names[0])
    server.push(GROUP, r.web_resources("c1", first.port))
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    for name in names[1:]:
        pushed = server.push(GROUP, r.web_resources("c1", upstream(name).port), version=f"label-{name}")
        server.kill()
        server.start()
        assert server.versions(GROUP) == pushed["versions"]
        wait_body(port, name)
    server.wait_synced(GROUP, NODE)


@in_variants(Variant.ADS_DELTA, others=[Variant.ADS_SOTW])
def test_envoy_that_starts_while_the_server_is_down(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    server.push(GROUP, r.web_resources("c1", upstream("a").port))
    server.stop()
    envoy = connect(variant)
    wait_until(lambda: envoy.stat("cluster.xds_cluster.upstream_cx_connect_fail"), "Envoy tried to connect")
    server.start()
    wait_body(envoy.wait_live().wait_listener("web"), "a")
