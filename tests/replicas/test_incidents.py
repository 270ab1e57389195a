"""Servers and the database fail in turn under 30 Envoys: no request is lost, and all end at the newest revision."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import swap_kinds as kinds
from tests.replicas.site import Replica, ReplicaSite, ReplicaSites
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.postgres import PostgresServer
from tests.support.server import GROUP

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("incidents")]  # 30 Envoys each: one at a time

DIALECTS = (Variant.ADS_SOTW, Variant.ADS_DELTA)
ENVOYS = DIALECTS * 15
AFTERWARDS_S = 3.0
STOPPED_S = 20.0  # longer than the lease and the heartbeat of a member
DATABASE_AWAY_S = 60.0


def kill(site: ReplicaSite) -> None:
    """Each server is killed, and started again after more pushes."""
    for replica in site.replicas:
        replica.server.kill()
        site.push_for(AFTERWARDS_S)
        replica.server.start()
        site.push_for(AFTERWARDS_S)


def stop(site: ReplicaSite) -> None:
    """Each server stands still for a while, with its connections open."""
    for replica in site.replicas:
        replica.stop_running()
        try:
            others = [each for each in site.replicas if each is not replica]
            push_at(site, others, STOPPED_S)
        finally:
            replica.go_on()
        site.push_for(AFTERWARDS_S)


def cut_from_proxies(site: ReplicaSite) -> None:
    """Each server is cut from its proxies."""
    for replica in site.replicas:
        replica.proxies.cut()
        site.push_for(2 * AFTERWARDS_S)
        replica.proxies.restore()
        site.push_for(AFTERWARDS_S)


def cut_from_database(site: ReplicaSite) -> None:
    """Each server is cut from the database alone; the others go on."""
    for replica in site.replicas:
        replica.database.cut()
        site.push_for(STOPPED_S)
        replica.database.restore()
        site.push_for(AFTERWARDS_S)


def take_database_away(site: ReplicaSite) -> None:
    """The database is away for a minute: proxies are served, pushes are refused."""
    site.database.kill()
    time.sleep(DATABASE_AWAY_S)
    answer = site.replicas[0].server.request("DELETE", f"/api/v1/groups/{GROUP}?allow_empty=true")
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) > 0
    site.database.start()
    site.push_for(AFTERWARDS_S)


def take_both_away(site: ReplicaSite) -> None:
    """The database is away, and each server is killed and started meanwhile: it serves its copy."""
    site.database.kill()
    for replica in site.replicas:
        replica.server.kill()
        time.sleep(AFTERWARDS_S)
        replica.server.start()
        time.sleep(AFTERWARDS_S)
    site.database.start()
    site.push_for(AFTERWARDS_S)


def roll(site: ReplicaSite) -> None:
    """The servers are replaced one after the other, as an upgrade does."""
    for replica in site.replicas:
        replica.restart()
        site.push_for(AFTERWARDS_S)


def restore_backup(site: ReplicaSite) -> None:
    """A backup of an earlier turn is restored at one server, and pushes go on at all."""
    first, second, *_ = site.replicas
    backup = first.server.request("GET", "/api/v1/backup").content
    site.push_for(AFTERWARDS_S)
    restored = second.server.request("POST", "/api/v1/restore?replace=true", content=backup)
    assert restored.is_success, restored.text
    site.push_for(AFTERWARDS_S)


def push_at(site: ReplicaSite, replicas: list[Replica], seconds: float) -> None:
    """Push again and again at some of the servers."""
    all_replicas, site.replicas = site.replicas, replicas
    try:
        site.push_for(seconds)
    finally:
        site.replicas = all_replicas


INCIDENTS = (kill, stop, cut_from_proxies, cut_from_database, take_database_away, take_both_away, roll, restore_backup)


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.__name__)
@pytest.mark.parametrize("kind", [kinds.routes_move], ids=lambda kind: kind.__name__)
def test_an_incident_amid_swaps_loses_no_request(
    tmp_path: Path,
    background: Background,
    running: ExitStack,
    kind: kinds.Kind,
    incident: Callable[[ReplicaSite], None],
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown if the test fails
    site = ReplicaSites(tmp_path, background, running).open(kind, ENVOYS, random.Random(seed))
    site.wait_view()
    incident(site)
    site.push()
    site.wait_newest()
    site.wait_view()
    assert not site.failures(), "\n".join(site.failures())
    site.end()


def test_a_failover_loses_no_acknowledged_push_and_no_request(
    tmp_path: Path, background: Background, running: ExitStack
) -> None:
    """The primary dies amid pushes, and its synchronous standby is promoted; both are in the URL."""
    standbys: list[PostgresServer] = []

    def make_standby(primary: PostgresServer) -> PostgresServer:
        standby = running.enter_context(PostgresServer(copy_of=primary))
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        standbys.append(standby)
        return standby

    site = ReplicaSites(tmp_path, background, running).open(
        kinds.routes_move, DIALECTS * 3, random.Random(), make_standby
    )
    site.push_for(AFTERWARDS_S)
    site.database.kill()
    standbys[0].promote()
    site.push_for(2 * AFTERWARDS_S)
    site.wait_newest()
    first = site.acknowledged[0]
    assert site.acknowledged == list(range(first, first + len(site.acknowledged)))
    for replica in site.replicas:
        assert replica.server.get(f"/groups/{GROUP}")["revision"] == site.acknowledged[-1]
    site.end()
