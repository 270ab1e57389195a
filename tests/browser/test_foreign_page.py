"""A real browser on a page of another origin tries to push to a server without tokens, and to read its keys.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import EVIL, open_page
from tests.browser.evil import EvilSite
from tests.support import resources as r
from tests.support.server import ServerProcess

pytestmark = pytest.mark.browser

GROUP = "test"
KEY = "-----BEGIN THE KEY-----"
SECRET = {
    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    "name": "key",
    "generic_secret": {"secret": {"inline_string": KEY}},
}
PUSHED: dict[str, Any] = {"group": GROUP, "snapshot": {"version": "=", "resources": [r.static_cluster("evil")]}}
TIMEOUT_S = 60.0


@pytest.mark.parametrize("host", [EVIL, "127.0.0.1", "localhost"], ids=["another site", "another port", "same site"])
def test_a_page_of_another_origin_changes_nothing_and_reads_nothing(
    tmp_path: Path, running: ExitStack, host: str
) -> None:
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))
    server.push(GROUP, [r.static_cluster("first"), SECRET])
    server.push(GROUP, [r.static_cluster("good"), SECRET])
    site = running.enter_context(EvilSite(server.http_port, PUSHED, rebind=host == EVIL))
    chromium = running.enter_context(open_page(f"http://{host}:{site.port}/", tmp_path))
    assert site.reported.wait(TIMEOUT_S), chromium.log_tail()

    # The browser did send what a page can send: it is the server that refused it.
    assert site.stolen[0] == ("POST", "/stolen", b"control")
    report = site.report
    assert [report[f"foreign {name}"] for name in ("blob", "text", "rollback", "release", "poll")] == ["sent"] * 5
    assert report["foreign beacon"] == "true"
    told = next(line for line in server.process.log().splitlines() if "http.foreign_refused" in line)
    assert json.loads(told)["path"] == "/api/v1/transactions"  # the first one, before anybody looked at its body
    for name in ("put", "json", "delete", "json poll", "read", "metrics"):
        assert report[f"foreign {name}"].startswith("failed"), report
    if host == EVIL:
        for name in ("put", "json", "delete", "json poll", "read", "metrics"):
            assert report[f"rebound {name}"].startswith("403"), report
    assert KEY not in str(report)

    items = server.get("/groups")["items"]
    assert [(item["group"], item["revision"]) for item in items] == [(GROUP, 2)]
    snapshot = server.get(f"/groups/{GROUP}/snapshot")
    assert [item["name"] for item in snapshot["resources"]] == ["good", "key"]
    # Its owner may do all of it.
    assert server.push(GROUP, [r.static_cluster("by curl")])["revision"] == 3
