"""No request is lost in the swaps of all kinds while an Envoy moves from server to server in the middle of each."""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.swap_kinds import KINDS, Kind, tunnel_leads_elsewhere
from tests.replicas.site import Replica, ReplicaSite, ReplicaSites
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.envoy import EnvoyProcess
from tests.support.process import free_port, wait_until

pytestmark = pytest.mark.soak

MOVES = 6
SETTLE_S = (0.0, 0.02, 0.2, 0.6)
AFTERWARDS_S = 2.5


def has_moved(site: ReplicaSite, envoy: EnvoyProcess, left: Replica) -> bool:
    """Whether an Envoy is at another server than before."""
    return site.holder(envoy) not in (None, left)


def may_miss_pushes(kind: Kind) -> bool:
    """Whether an Envoy that missed a push still finds all changes in an order that loses nothing.

    An internal listener that comes with the assignment that names it is not waited for (docs/protocol.md, "What is not
    promised"); this kind pushes it a turn before, so no turn may be missed.
    """
    return kind is not tunnel_leads_elsewhere


@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_moves_between_servers_amid_swaps_lose_no_request(
    tmp_path: Path, background: Background, running: ExitStack, kind: Kind, variant: Variant
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown if the test fails
    rng = random.Random(seed)
    site = ReplicaSites(tmp_path, background, running).open(kind, [variant], rng, port=free_port())
    (envoy,) = site.envoys
    for _ in range(MOVES):
        site.push()
        site.settle(rng.choice(SETTLE_S))
        left = wait_until(partial(site.holder, envoy), "the Envoy is at a server")
        assert left is not None
        left.proxies.cut()
        if may_miss_pushes(kind) and rng.random() < 0.5:
            site.push()
        wait_until(partial(has_moved, site, envoy, left), "the Envoy is at another server")
        left.proxies.restore()
        site.settle(rng.choice(SETTLE_S))
    site.wait_newest()
    site.settle(AFTERWARDS_S)
    site.wait_view()
    site.end()
