"""Rollouts that change a listener with open connections, while Envoys and the server have their usual delays."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.e2e.rollout_site import BASE, HEAD, RolloutSite, open_site
from tests.e2e.test_rollout_lines import wait_in_step
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import Variant, in_variants
from tests.support.envoy import wait_body
from tests.support.process import wait_until

ENVOYS = 3


def changed(site: RolloutSite) -> list[r.Json]:
    """Another filter chain, whose route configuration and cluster are new."""
    source = site.variant.config_source
    cluster, endpoints, *_ = site.content(HEAD)
    return [cluster, endpoints, r.listener("web", r.rds("other", source)), r.route_config("other", r.route(HEAD))]


@in_variants(Variant.ADS_SOTW)
def test_a_listener_that_is_rolled_out_refused_aborted_and_promoted_loses_no_request(
    tmp_path: Path, running: ExitStack, background: Background, variant: Variant, taken_port: int
) -> None:
    """Connections to the filter chain that is taken back go on beside those to the one that is back."""
    site = open_site(tmp_path, running, background, variant, ENVOYS, has_usual_delays=True)
    site.start()
    canary, *others = site.ranked
    before = site.updates(others)

    def wait_bodies(of_canary: str, of_others: str = BASE) -> None:
        for name, port in site.ports.items():
            wait_body(port, of_canary if name == canary else of_others)
            wait_in_step(site.server, name)

    def roll_out(resources: list[r.Json], **plan: Any) -> None:
        assert site.push(resources, {"waves": "1", "max_errors": "100%", **plan}, retry=True).status_code == 200

    taken = r.listener("taken", r.rds("other", site.variant.config_source), taken_port)
    for _ in range(2):
        roll_out([*changed(site), taken], hold_s=60)
        assert site.wait_state("rolled_back")["reason"].startswith(f"{canary} rejected it: ")
        wait_bodies(BASE)
        roll_out(changed(site), hold_s=60)
        wait_bodies(HEAD)
        site.act("abort")
        wait_bodies(BASE)
    assert site.updates(others) == before
    roll_out(changed(site), hold_s=1)
    wait_until(lambda: site.rollout()["state"] == "promoted", "promoted", detail=site.rollout)
    wait_bodies(HEAD, HEAD)
    site.end()
