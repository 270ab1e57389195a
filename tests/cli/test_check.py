"""``check`` and ``version``: points, exit codes, and where to read on."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.commands import xds
from tests.support.process import LOOPBACK, REPOSITORY
from tests.support.resources import static_cluster
from xds.cli.health import _CHECKS, GUIDE


def states(remote: Remote) -> dict[str, str]:
    items = remote.xds("check", "-o", "json").json()["items"]
    return {item["check"]: item["state"] for item in items}


def test_every_point_is_checked(remote: Remote) -> None:
    assert states(remote) == dict.fromkeys(("live", *_CHECKS), "ok")
    assert remote.xds("check", "--wait").code == 0


def test_open_nacks_are_a_warning(remote: Remote) -> None:
    remote.server.push("checked", [static_cluster("a", 80)])
    with Proxy(remote.server.grpc_port, "checked-1", "checked") as proxy:
        proxy.refusal = "no"
        proxy.answer()
        remote.server.wait_nack("checked-1", "clusters")
        assert states(remote)["nacks"] == "warning"
        assert "1 open, by checked-1" in remote.xds("check").out


def test_nobody_there() -> None:
    environment = {"XDS_ADDR": f"{LOOPBACK}:1"}
    assert xds("check", environment=environment).code == 7
    assert xds("check", "--wait", "--timeout", "100ms", environment=environment).code == 8
    assert xds("version", environment=environment).out.splitlines()[1] == "server -"


@pytest.mark.parametrize("name", ["live", *_CHECKS])
def test_every_point_has_its_place_in_the_guide(name: str) -> None:
    page, anchor = GUIDE.split("#")
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / page).read_text(), re.MULTILINE)
    assert f"{anchor}check-{name}" in [heading.lower().replace(" ", "-") for heading in headings]
