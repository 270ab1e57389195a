"""Resources that a real Envoy rejected are not re-sent by the next process, which still shows the NACK and its time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support import resources as r
from tests.support.bootstrap import Variant
from tests.support.envoy import EnvoyProcess, wait_body
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

GROUP, NODE = "test", "envoy-1"
QUIET_S = 1.0  # after the reconnect: enough time for anything that could be re-sent
NACKED = 'xds_server_requests_total{{kind="nack",type="{}"}}'

Connect = Callable[..., EnvoyProcess]
StartUpstream = Callable[[str], Upstream]


def wait_written(server: ServerProcess) -> None:
    """Wait until the open NACKs are in the store: in the file that nobody else may open as a database."""
    log = server.data / "xds.sqlite3-wal"
    words = [record["message"].split()[0].encode() for record in server.nacks(state="open")]
    assert words
    wait_until(lambda: all(word in log.read_bytes() for word in words), "the refusals are written")


def written_and_killed(server: ServerProcess) -> None:
    """``kill -9``, once the rejection is stored."""
    wait_written(server)
    server.kill()


@pytest.mark.parametrize(
    ("variant", "end"),
    [
        pytest.param(Variant.ADS_SOTW, written_and_killed, id="sotw-kill"),
        pytest.param(Variant.ADS_SOTW, ServerProcess.stop, id="sotw-sigterm", marks=pytest.mark.soak),
        pytest.param(Variant.ADS_DELTA, written_and_killed, id="delta-kill", marks=pytest.mark.soak),
        pytest.param(Variant.ADS_DELTA, ServerProcess.stop, id="delta-sigterm"),
    ],
)
def test_refused_clusters_and_listeners_are_not_sent_again_after_a_restart(
    server: ServerProcess,
    connect: Connect,
    upstream: StartUpstream,
    variant: Variant,
    end: Callable[[ServerProcess], object],
) -> None:
    a, b = upstream("a"), upstream("b")
    web = r.web_resources("c1", a.port)
    server.push(GROUP, web)
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    taken = r.listener("taken", r.inline_routes("taken", r.direct_route("hi")), port=b.port)
    bad = [r.refused_cluster("bad"), taken]
    server.push(GROUP, [*web, *bad])
    before = [server.wait_nack(NODE, alias) for alias in ("clusters", "listeners")]
    counts = ("cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected")
    refusals = [envoy.stat(name) for name in counts]
    assert refusals == [1, 1]
    end(server)
    server.start()
    after = [server.wait_nack(NODE, alias) for alias in ("clusters", "listeners")]
    time.sleep(QUIET_S)
    assert [envoy.stat(name) for name in counts] == refusals
    metrics = server.metrics()
    assert [metrics.get(NACKED.format(alias), 0) for alias in ("clusters", "listeners")] == [0, 0]
    shown = ("id", "node", "message", "first", "count", "guilty", "state")
    assert [{name: each[name] for name in shown} for each in after] == [
        {name: each[name] for name in shown} for each in before
    ]
    # The rest goes on, and the repair goes out.
    server.push(GROUP, [*r.web_resources("c2", b.port), *bad])
    wait_body(port, "b")
    assert [envoy.stat(name) for name in counts] == refusals
    server.push(GROUP, r.web_resources("c2", b.port))
    server.wait_synced(GROUP, NODE)
    wait_until(lambda: not server.nacks(state="open"), "the refusals are resolved")


def test_resolved_nacks_are_forgotten_over_a_restart(
    server: ServerProcess, connect: Connect, upstream: StartUpstream
) -> None:
    web = r.web_resources("c1", upstream("a").port)
    server.push(GROUP, web)
    envoy = connect(Variant.ADS_DELTA).wait_live()
    server.push(GROUP, [*web, r.refused_cluster("bad")])
    server.wait_nack(NODE, "clusters")
    wait_written(server)
    server.push(GROUP, web)
    server.wait_synced(GROUP, NODE)
    server.stop()
    server.start()
    server.wait_synced(GROUP, NODE)
    assert server.nacks() == []
    # Pushed again, it is tried again: who knows what changed on the proxy since.
    server.push(GROUP, [*web, r.refused_cluster("bad")])
    server.wait_nack(NODE, "clusters")
    assert envoy.stat("cluster_manager.cds.update_rejected") == 2


def test_a_restarted_envoy_is_sent_the_rejected_resource_once_more(
    server: ServerProcess, connect: Connect, upstream: StartUpstream
) -> None:
    """It may be another release that accepts it. If it rejects it again, the same record counts on."""
    web = r.web_resources("c1", upstream("a").port)
    server.push(GROUP, [*web, r.refused_cluster("bad")])
    first = connect(Variant.ADS_SOTW)
    before = server.wait_nack(NODE, "clusters")
    first.stop()
    server.stop()
    server.start()
    connect(Variant.ADS_SOTW)
    wait_until(lambda: server.nacks()[0]["count"] == 2, "it was refused anew")
    (after,) = server.nacks()
    assert (after["id"], after["first"]) == (before["id"], before["first"])
