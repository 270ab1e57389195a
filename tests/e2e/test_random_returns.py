"""No request is lost in random returns: cuts and kills of the server amid swaps, with pushes that Envoy misses.

Two Envoys with default drain flags run side by side under keep-alive load, each with a server of its own.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_kinds import Kind
from tests.e2e.swap_site import PlainLoad, SwapSite, SwapSites
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.process import wait_until

RETURNS = 300  # of both Envoys together
CAUGHT_UP_EVERY = 25
# A push that changes a listener lets its clusters linger for ten minutes, those of `linger_max` (100) pushes at most.
PUSHES_OF_A_LISTENER = 90


def push(site: SwapSite) -> None:
    """Push the next turn, unless too much would linger."""
    if site.kind is kinds.routes_move or site.turn < PUSHES_OF_A_LISTENER:
        site.push()


def come_back(site: SwapSite, rng: random.Random) -> None:
    """Swap, lose the connection or the server in the middle, perhaps miss pushes, and come back."""
    if rng.random() < 0.7:
        push(site)
    site.settle(rng.choice((0.0, 0.0, 0.02, 0.2, 0.6)))
    if rng.random() < 0.3:
        site.server.kill()
        site.server.start()
    else:
        site.cut()
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            push(site)
        site.proxy.restore()
    if rng.random() < 0.2:
        push(site)
    wait_until(site.streams, "Envoy is back")
    site.settle(rng.choice((0.0, 0.05, 0.3)))


@pytest.mark.soak
@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
def test_random_returns_lose_no_request(
    tmp_path: Path, background: Background, running: ExitStack, variant: Variant
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown if the test fails
    rng = random.Random(seed)

    def opened(kind: Kind) -> SwapSite:
        directory = tmp_path / kind.__name__
        directory.mkdir()
        return SwapSites(directory, background, running).open(kind, variant, load=PlainLoad)

    sites = [opened(kinds.routes_move), opened(kinds.inline_routes_move)]
    for at in range(RETURNS // len(sites)):
        for site in sites:
            come_back(site, rng)
            assert site.load.failed == 0, f"return {at} of {site.kind.__name__}: {site.load.reports()}"
            if at % CAUGHT_UP_EVERY == 0:
                site.wait_synced()
    for site in sites:
        site.wait_served()
        site.settle()
        site.wait_synced()
        site.end()
