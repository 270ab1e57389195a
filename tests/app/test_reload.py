"""``auth`` settings are reloaded on SIGHUP and when their file changes; invalid ones change nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.process import wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.app.reload import Reloader
from xds.fleet.event_log import EventLog
from xds.model.resource_type import CLUSTER
from xds.server.counters import Metrics
from xds.settings.settings import Settings, SettingsError

ADMIN = {"name": "root", "scopes": ["admin"]}
PROXY = {"name": "proxy", "scopes": ["xds"]}


def auth(*tokens: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = [{**token, "sha256": sha256(token["name"].encode()).hexdigest()} for token in tokens]
    return {"auth": {"tokens": made, **more}}


class Site:
    """A server, its settings file, and a proxy that is connected."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self.file = directory / "xds.json"
        self.write(auth(ADMIN, PROXY))
        flags = ["--store", "memory", "--config", str(self.file)]
        self.server = running.enter_context(ServerProcess(directory, flags, token="root"))
        self.server.push("default", [static_cluster("a", 80)])
        self._running = running

    def write(self, settings: Any) -> None:
        """Replace the file, as editors do."""
        draft = self.file.with_suffix(".new")
        draft.write_text(settings if isinstance(settings, str) else json.dumps(settings))
        draft.replace(self.file)

    def wait_failures(self, number: int) -> None:
        """Wait until this many reloads failed."""
        failed = 'xds_server_auth_reloads_total{result="failed"}'
        wait_until(lambda: self.server.metrics().get(failed, 0) >= number, f"failure {number}", 15)

    def hang_up(self) -> None:
        os.kill(self.server.process.pid, signal.SIGHUP)

    def proxy(self) -> GrpcStream:
        """Open a stream and wait for its response."""
        token = [("authorization", "Bearer proxy")]
        stream = self._running.enter_context(GrpcStream(self.server.grpc_port, metadata=token))
        stream.send(sotw(CLUSTER)).receive()
        return stream

    def status(self, token: str) -> int:
        answer = self.server.request("GET", "/api/v1/groups", headers={"authorization": f"Bearer {token}"})
        return int(answer.status_code)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(tmp_path, running)


@pytest.mark.parametrize("how", [Site.hang_up, lambda site: None], ids=["SIGHUP", "file"])
def test_tokens_and_rules_are_read_again(site: Site, how: Callable[[Site], None]) -> None:
    """SIGHUP reloads the rules; it once ended the process."""
    proxy = site.proxy()
    site.write(auth(ADMIN, {"name": "second", "scopes": ["read"]}))
    how(site)
    wait_until(lambda: site.status("second") == 200, "the new token", 15)
    with pytest.raises(grpc.RpcError) as ended:  # the proxy's token was revoked
        proxy.receive()
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert site.server.metrics()['xds_server_auth_reloads_total{result="ok"}'] == 1
    shown = site.server.get("/config")["auth"]["tokens"]
    assert [token["name"] for token in shown] == ["root", "second"]
    assert site.server.process.running
    (entry,) = (each for each in site.server.get("/audit")["items"] if each["action"] == "auth.reloaded")
    assert entry["actor"] == "server"
    assert (list(entry["old"]["tokens"]), list(entry["new"]["tokens"])) == (["root", "proxy"], ["root", "second"])


def test_a_bad_file_keeps_the_rules_of_before(site: Site) -> None:
    """The last cases are valid files that would admit everybody, such as an emptied one."""
    cases: list[tuple[Any, str]] = [
        ("auth: {tokens: [", "while parsing"),
        ({"auth": {"tokens": [{"name": "x", "sha256": "s3cret", "scopes": ["admin"]}]}}, "auth.tokens.0.sha256"),
        (auth(ADMIN, nodes={"mode": "enforce"}), "mode enforce needs rules"),
        (auth(ADMIN, nodes={"rules": [{"principal": "cn:{a}", "groups": ["{b}"]}]}), "the principal captures no {b}"),
        ({"auht": {}}, "did you mean 'auth'"),
        ("", "would remove all access control"),
        (auth(certificates=[{"cn": "root", "name": "root", "scopes": ["admin"]}]), "would remove all access control"),
    ]
    for number, (bad, says) in enumerate(cases, 1):
        site.write(bad)
        site.hang_up()
        site.wait_failures(number)
        assert says in site.server.process.log()
        assert (site.status("root"), site.status("wrong")) == (200, 401)
    assert "s3cret" not in site.server.process.log()


def test_a_file_that_is_gone_and_other_settings_change_nothing(site: Site) -> None:
    site.file.unlink()
    wait_until(lambda: "auth.reload_failed" in site.server.process.log(), "the failure", 15)
    assert site.status("root") == 200
    site.write({**auth(ADMIN), "server": {"drain_s": 1}})
    wait_until(lambda: "settings.need_restart" in site.server.process.log(), "a word about them", 15)
    assert site.server.get("/config")["server"]["drain_s"] == 5


async def test_following_ends_when_a_request_comes_as_it_is_cancelled() -> None:
    """Else a server that is told to reload and to stop at once would never stop."""

    def read() -> Settings:
        raise SettingsError("refused")

    async def apply(_: Settings) -> int:
        return 0

    reloader = Reloader(Settings(), read, [], apply, EventLog(), Metrics())
    following = asyncio.create_task(reloader.follow())
    await asyncio.sleep(0.05)  # it waits
    reloader.request()
    await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait([following], timeout=1.0)
    assert following.cancelled()
