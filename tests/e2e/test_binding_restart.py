"""A binding is changed and the server ends: what drains goes on to do so at real Envoys, old and new, for its time."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.background import Background
from tests.support.process import LOOPBACK, wait_until
from tests.support.service_site import SERVICE, ServiceSite, draining, hosts, wait_serving

DRAIN_S = 8.0
WRITTEN_S = 1.5  # what drains is written at most a second later


@pytest.mark.parametrize("is_killed", [pytest.param(False, marks=pytest.mark.soak), True])
def test_endpoints_that_a_changed_binding_removes_drain_over_a_restart(
    tmp_path: Path, background: Background, running: ExitStack, is_killed: bool
) -> None:
    file = tmp_path / "targets.json"
    sources = {"targets": {"kind": "files", "paths": [str(file)]}}
    site = ServiceSite(tmp_path, background, running, sources, drain_s=DRAIN_S)
    old, new = site.upstream().port, site.upstream().port
    instances = [
        {"address": LOOPBACK, "port": port, "meta": {"version": version}} for port, version in ((old, "1"), (new, "2"))
    ]
    file.write_text(json.dumps({"services": {SERVICE: instances}}))
    site.bind(filter="Service.Meta.version == 1")
    envoy = site.envoy()
    wait_serving(envoy, {old: 1})
    load = site.load(envoy)
    site.bind(filter="Service.Meta.version == 2")
    ends_at = time.monotonic() + DRAIN_S
    wait_serving(envoy, {new: 1})
    assert draining(envoy) == {old}
    if is_killed:
        time.sleep(WRITTEN_S)
        site.server.kill()
    else:
        site.server.stop()
    site.server.start()
    late = site.envoy("late")
    wait_serving(late, {new: 1})
    for each in (envoy, late):
        assert draining(each) == {old} or time.monotonic() > ends_at - 1, hosts(each)
    wait_until(lambda: not draining(envoy) and not draining(late), "it has drained")
    assert time.monotonic() > ends_at - 1, "it drained for its whole time, the restart included"
    report = load.stop()
    assert report.failed == 0, report
