"""What a target file says, and what is wrong with it."""

from __future__ import annotations

import json

import pytest

from xds.model.errors import ValidationError
from xds.model.node import Locality
from xds.services.core.instance import Health, Instance
from xds.services.sources.target_files import FILE_LIMIT_BYTES, Content, read_targets


def read(text: str, stem: str = "targets") -> Content:
    return read_targets(text.encode(), "/etc/targets.yaml", stem, "job")


def findings(text: str) -> list[str]:
    with pytest.raises(ValidationError) as raised:
        read(text)
    return [str(each) for each in raised.value.violations]


def test_everything_that_an_instance_may_say() -> None:
    content = read("""
services:
  web:
    - 10.0.0.1:8080
    - "[2001:db8::1]:8080"
    - id: web-3
      address: 10.0.0.3
      port: 8080
      ports: {admin: 9901}
      meta: {version: "2"}
      tags: [blue]
      weight: 5
      warning_weight: 2
      locality: {region: eu, zone: eu-1, sub_zone: a}
      datacenter: dc2
      node: host-3
      node_meta: {rack: r1}
      health: warning
  idle: []
""")
    first, second, third = content["web"]
    assert first == Instance("10.0.0.1:8080", "10.0.0.1", 8080)
    assert second == Instance("[2001:db8::1]:8080", "2001:db8::1", 8080)
    assert (third.id, third.ports, third.meta, third.tags) == ("web-3", {"admin": 9901}, {"version": "2"}, ("blue",))
    assert (third.weight, third.warning_weight, third.datacenter) == (5, 2, "dc2")
    assert (third.locality, third.node, third.node_meta) == (Locality("eu", "eu-1", "a"), "host-3", {"rack": "r1"})
    assert (first.health, third.health) == (Health.PASSING, Health.WARNING)
    assert content["idle"] == ()


def test_the_form_of_prometheus() -> None:
    groups = [
        {"targets": ["10.0.0.1:80", "10.0.0.2:80"], "labels": {"job": "web", "env": "prod", "zone": "eu-1"}},
        {"targets": ["10.0.0.2:80", "10.0.0.3:80"], "labels": {"job": "web", "__meta_x": "left out"}},
        {"targets": ["10.0.0.9:90"]},
    ]
    content = read(json.dumps(groups), stem="other")
    assert [one.address for one in content["web"]] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    first, _, third = content["web"]
    assert (first.meta, first.locality) == ({"job": "web", "env": "prod", "zone": "eu-1"}, Locality("", "eu-1"))
    assert third.meta == {"job": "web"}
    assert [one.port for one in content["other"]] == [90]
    assert read("- targets: [10.0.0.1:80]")["targets"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "/etc/targets.yaml: an empty file: write 'services: {}'"),
        ("# nothing yet\n", "an empty file"),
        ("services: {}\n---\nservices: {}\n", "two documents"),
        ("services:\n  web: [10.0.0.1:80\n", "/etc/targets.yaml:3:1"),
        ("a\x00b", "/etc/targets.yaml:1:2"),
        ("instances: []", "unknown field 'instances'; one of services"),
        ("{}", "expected 'services:'"),
        ("7", "expected an object, not 7"),
        ("services: [web]", "/etc/targets.yaml:1:1 /services: expected an object, not ['web']"),
        ("services:\n  web: 10.0.0.1:80", "/etc/targets.yaml:2:3 /services/web: expected a list, not '10.0.0.1:80'"),
        ("services:\n  'we b': []", "/services/we b: 'we b' is not a valid service name"),
        (
            "services:\n  web:\n    - web.example.org:80",
            "yaml:3:7 /services/web/0/address: 'web.example.org' is not an IP address",
        ),
        ("services: {web: [10.0.0.1]}", "expected ADDRESS:PORT, not '10.0.0.1'"),
        ("services: {web: ['10.0.0.1:99999']}", "port 99999 is not in 1..65535"),
        ("services: {web: ['10.0.0.01:80']}", "is not an IP address"),
        ("services: {web: [{address: 10.0.0.1}]}", "/services/web/0: port is required"),
        ("services: {web: [{port: 80}]}", "/services/web/0: address is required"),
        ("services: {web: [{address: 10.0.0.1, port: '80'}]}", "/services/web/0/port: expected an integer, not '80'"),
        ("services: {web: [{address: 10.0.0.1, port: true}]}", "expected an integer, not True"),
        ("services: {web: [{address: 10.0.0.1, port: 80, wieght: 3}]}", "'wieght'; did you mean 'weight'?"),
        ("services: {web: [{address: 10.0.0.1, port: 80, weight: -1}]}", "weight is -1, not in 0..65535"),
        (
            "services: {web: [{address: 10.0.0.1, port: 80, meta: {v: 2}}]}",
            '/meta/v: expected a string, not 2; write "2"',
        ),
        ("services: {web: [{address: 10.0.0.1, port: 80, tags: [1]}]}", "/tags/0: expected a string, not 1"),
        (
            "services: {web: [{address: 10.0.0.1, port: 80, health: ok}]}",
            "'ok' is not one of passing, warning, critical",
        ),
        ("services: {web: [{address: 10.0.0.1, port: 80, locality: {zonee: a}}]}", "/locality/zonee: unknown field"),
        ("services: {web: [10.0.0.1:80, 10.0.0.1:80]}", "/services/web/1: two instances have the id '10.0.0.1:80'"),
        ("services: {web: []}\nservices: {web: []}", "2:1"),
        ("- targets: [10.0.0.1:80]\n  lables: {}", "'lables'; did you mean 'labels'?"),
        ("- targets: [80]", "expected ADDRESS:PORT, not 80"),
        ("- {targets: [10.0.0.1:80], labels: {job: '/'}}", "is not a valid service name"),
        ("[[]]", "expected an object, not []"),
    ],
)
def test_errors_are_named_with_their_place(text: str, told: str) -> None:
    found = findings(text)
    assert any(told in each for each in found), found
    assert all(each.startswith("/etc/targets.yaml") for each in found), found


def test_all_errors_are_reported_together() -> None:
    found = findings("services: {web: [{address: a, port: 0}, {address: b, port: 80}, 10.0.0.1:80]}")
    assert len(found) == 3, found


def test_large_files_and_floods_of_errors_are_bounded() -> None:
    assert "larger than" in findings("#" * (FILE_LIMIT_BYTES + 1))[0]
    assert len(findings("services: {web: [" + ", ".join(["x:80"] * 5_000) + "]}")) <= 100
    bomb = "a: &a [x, x]\n" + "\n".join(f"b{n}: &b{n} [*{'a' if n == 0 else f'b{n - 1}'}, *a]" for n in range(40))
    assert findings(bomb)
