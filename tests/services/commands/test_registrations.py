"""Registered instances on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from xds.cli.errors import Exit

WEB = {"ID": "cli-1", "Name": "cli-web", "Address": "10.0.0.1", "Port": 80, "Check": {"TTL": "5m", "Status": "passing"}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "web.yaml"
    found.write_text(yaml.safe_dump(WEB))
    return found


def test_an_instance_is_registered_listed_maintained_and_deregistered(remote: Remote, file: Path) -> None:
    done = remote.xds("service", "register", "-f", file)
    assert (done.code, done.err) == (0, "instance cli-1 of service cli-web at 10.0.0.1:80: registered, passing\n")
    listed = remote.xds("service", "registered", "cli-web").out.splitlines()
    assert listed[0].split() == ["ID", "SERVICE", "ADDRESS", "HEALTH", "CHECKS", "AGE"]
    assert listed[1].split()[:6] == ["cli-1", "cli-web", "10.0.0.1:80", "passing", "1", "passing"]
    done = remote.xds("service", "maintain", "cli-1", "--reason", "new disk")
    assert done.err.endswith("in maintenance, critical\n")
    shown = yaml.safe_load(remote.xds("service", "registered", "cli-web", "-o", "yaml").out)["items"][0]
    assert [(check["kind"], check["status"], check["notes"]) for check in shown["checks"]] == [
        ("ttl", "passing", ""),
        ("maintenance", "critical", "new disk"),
    ]
    assert "_service_maintenance:cli-1 critical" in remote.xds("service", "registered", "cli-web").out
    assert remote.xds("service", "maintain", "cli-1", "--end").err.endswith("back from maintenance, passing\n")
    done = remote.xds("service", "deregister", "cli-1")
    assert (done.code, done.err) == (0, "instance cli-1 of service cli-web: deregistered\n")
    assert remote.xds("service", "deregister", "cli-1").code == Exit.NOT_FOUND
    assert json.loads(remote.xds("service", "registered", "cli-web", "-o", "json").out)["items"] == []


def test_a_file_of_consuls_agent_is_read(remote: Remote) -> None:
    """It has the definition under ``service``, in small letters."""
    text = '{"service": {"name": "cli-six", "address": "2001:db8::1", "port": 80, "tagged_addresses": {}}}'
    done = remote.xds("service", "register", "-f", "-", stdin=text)
    assert done.err == "instance cli-six of service cli-six at [2001:db8::1]:80: registered, passing\n"
    remote.xds("service", "deregister", "cli-six")


def test_errors_are_reported_with_their_places(remote: Remote, tmp_path: Path) -> None:
    file = tmp_path / "web.json"
    file.write_text(json.dumps({**WEB, "Port": 0, "Check": {"HTTP": "http://10.0.0.1/", "Interval": "10s"}}))
    done = remote.xds("service", "register", "-f", file)
    assert done.code == Exit.INVALID
    assert "/Port: port 0 is not in 1..65535" in done.err
    assert "/Check: checks of the type http are not supported" in done.err
    file.write_text("{}")
    done = remote.xds("service", "register", "-f", file)
    assert (done.code, "a service needs a Name" in done.err) == (Exit.INVALID, True)


def test_checks_of_a_file_can_be_left_out(remote: Remote, tmp_path: Path) -> None:
    """Consul's agent makes checks by HTTP; here Envoy checks health, and who registers says so."""
    file = tmp_path / "checked.yaml"
    check = "{HTTP: 'http://10.0.0.1/health', Interval: 10s}"
    file.write_text(f"Name: checked\nID: checked-1\nAddress: 10.0.0.1\nPort: 80\nCheck: {check}\nchecks: [{check}]\n")
    refused = remote.xds("service", "register", "-f", file)
    assert (refused.code, "checks of the type http" in refused.err) == (3, True)
    done = remote.xds("service", "register", "-f", file, "--without-checks")
    assert (done.code, "without checks" in done.err) == (0, True)
    assert "checked-1" in remote.xds("service", "registered", "checked").out
