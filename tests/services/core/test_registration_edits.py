"""What requests to register change, and that every index of the table follows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.model.errors import NotFoundError, ValidationError, XdsError
from xds.services.core import registration_edits as edits
from xds.services.core.index import CatalogLimits
from xds.services.core.instance import Health
from xds.services.core.registered_instance import AGENT_NODE, CheckKey, Key, RegisteredNode, Registration, find_check
from xds.services.core.registration_edits import Registrant
from xds.services.core.registration_rules import read_catalog_registration, read_check, read_service
from xds.services.core.registration_table import Edit, RegistrationTable

BY = Registrant("ops", "192.0.2.9", 1_000)
LIMITS = CatalogLimits()
WEB = {"ID": "web-1", "Name": "web", "Address": "10.0.0.1", "Port": 80, "Check": {"TTL": "10s"}}
DB: dict[str, Any] = {"Node": "n1", "Address": "10.9.0.1", "Service": {"ID": "db-1", "Service": "db", "Port": 5432}}


def registered(table: RegistrationTable, value: dict[str, Any], by: Registrant = BY, **arguments: Any) -> set[str]:
    return table.apply(edits.register(table, read_service(value), by, LIMITS, **arguments))


def in_catalog(table: RegistrationTable, value: dict[str, Any]) -> set[str]:
    return table.apply(edits.register_in_catalog(table, read_catalog_registration(value), BY, LIMITS))


def passes(table: RegistrationTable, check: str) -> None:
    table.apply(edits.update_check(table, CheckKey(AGENT_NODE, check), Health.PASSING, "well"))


def test_registering_again_keeps_the_status_of_checks_and_its_time() -> None:
    table = RegistrationTable()
    registered(table, WEB)
    passes(table, "service:web-1")
    later = Registrant("ops", "192.0.2.9", 2_000)
    assert registered(table, {**WEB, "Port": 81}, later) == {"web"}
    one = table.get(Key(AGENT_NODE, "web-1"))
    assert one is not None
    assert (one.checks[0].status, one.checks[0].output, one.port, one.registered_s) == ("passing", "well", 81, 1_000)


def test_registering_the_same_again_changes_nothing() -> None:
    table = RegistrationTable()
    registered(table, WEB)
    assert not edits.register(table, read_service(WEB), BY, LIMITS)


def test_checks_that_are_no_longer_named_are_removed_only_on_request_and_maintenance_stays() -> None:
    table, key = RegistrationTable(), Key(AGENT_NODE, "web-1")
    registered(table, WEB)
    table.apply(edits.maintain(table, key, True, ""))
    bare = {**WEB, "Check": None}
    registered(table, bare)
    one = table.get(key)
    assert one is not None
    assert [check.id for check in one.checks] == ["service:web-1", "_service_maintenance:web-1"]
    registered(table, bare, replaces_checks=True)
    one = table.get(key)
    assert one is not None
    assert [check.id for check in one.checks] == ["_service_maintenance:web-1"]
    assert table.owner(CheckKey(AGENT_NODE, "service:web-1")) is None


def test_an_instance_without_an_address_has_that_of_its_caller_or_of_its_node() -> None:
    table = RegistrationTable()
    registered(table, {"Name": "web", "Port": 80})
    in_catalog(table, DB)
    assert [one.address for service in ("web", "db") for one in table.instances(service)] == ["192.0.2.9", "10.9.0.1"]
    assert in_catalog(table, {"Node": "n1", "Address": "10.9.0.2"}) == {"db"}
    assert [one.address for one in table.instances("db")] == ["10.9.0.2"]
    with pytest.raises(ValidationError, match="not an IP address"):
        registered(table, {"Name": "web", "Port": 80}, Registrant())


def test_checks_of_a_node_are_checks_of_all_its_instances() -> None:
    table = RegistrationTable()
    in_catalog(table, DB)
    in_catalog(table, {**DB, "Service": {"Service": "cache", "Port": 1}})
    check = {"Node": "n1", "SkipNodeUpdate": True, "Check": {"CheckID": "disk", "Name": "disk", "Status": "warning"}}
    assert in_catalog(table, check) == {"db", "cache"}
    assert {one.health for service in ("db", "cache") for one in table.instances(service)} == {Health.WARNING}
    table.apply(edits.deregister_from_catalog(table, "n1", "", "disk"))
    assert {one.health for service in ("db", "cache") for one in table.instances(service)} == {Health.PASSING}


def test_an_id_that_goes_to_another_service_leaves_the_first() -> None:
    table = RegistrationTable()
    registered(table, WEB)
    assert registered(table, {**WEB, "Name": "shop"}) == {"web", "shop"}
    assert (table.count("web"), table.count("shop"), list(table.services())) == (0, 1, ["shop"])


def test_a_change_of_an_instance_needs_the_scope_of_its_service_before_and_after() -> None:
    """A right to register ``shop`` must not be enough to take over an instance of ``web``, or a node with one."""
    table = RegistrationTable()
    registered(table, WEB)
    taken = edits.register(table, read_service({**WEB, "Name": "shop"}), BY, LIMITS)
    assert edits.services_of(table, taken) == {"web", "shop"}
    in_catalog(table, DB)
    shop = {**DB, "Address": "10.9.9.9", "Service": {"Service": "shop", "Port": 1}}
    moved = edits.register_in_catalog(table, read_catalog_registration(shop), BY, LIMITS)
    assert edits.services_of(table, moved) == {"db", "shop"}
    kept = edits.register_in_catalog(table, read_catalog_registration({**shop, "SkipNodeUpdate": True}), BY, LIMITS)
    assert edits.services_of(table, kept) == {"shop"}
    assert edits.services_of(table, edits.deregister_from_catalog(table, "n1", "", "")) == {"db"}


def test_a_check_cannot_be_taken_from_another_instance() -> None:
    table = RegistrationTable()
    registered(table, WEB)
    other = {**WEB, "ID": "web-2", "Check": {"CheckID": "service:web-1", "TTL": "10s"}}
    with pytest.raises(ValidationError, match="is a check of the instance 'web-1'"):
        registered(table, other)
    id, check = read_check({"CheckID": "service:web-1", "Name": "x", "ServiceID": "web-2", "TTL": "1s"})
    registered(table, {**WEB, "ID": "web-2", "Check": None})
    with pytest.raises(ValidationError, match="is a check of the instance 'web-1'"):
        edits.add_check(table, Key(AGENT_NODE, id), check)


def test_a_check_without_a_ttl_takes_no_status() -> None:
    table, key = RegistrationTable(), Key(AGENT_NODE, "web-1")
    registered(table, WEB)
    table.apply(edits.maintain(table, key, True, ""))
    with pytest.raises(ValidationError, match="does not have associated TTL"):
        edits.update_check(table, CheckKey(AGENT_NODE, "_service_maintenance:web-1"), Health.PASSING, "")


def test_an_expired_check_keeps_its_last_output_once() -> None:
    table, key = RegistrationTable(), CheckKey(AGENT_NODE, "service:web-1")
    registered(table, WEB)
    outputs = []
    for output in ("", "hot"):
        table.apply(edits.update_check(table, key, Health.PASSING, output))
        for _ in range(2):
            table.apply(edits.expire_check(table, key))
        owner = table.owner(key)
        assert owner is not None
        outputs.append(owner.checks[0].output)
    assert outputs == ["TTL expired", "TTL expired (last output before timeout follows): hot"]


def test_this_server_as_a_node_cannot_be_taken_away_or_checked() -> None:
    table = RegistrationTable()
    registered(table, WEB)
    with pytest.raises(ValidationError, match="name the ServiceID"):
        edits.deregister_from_catalog(table, AGENT_NODE, "", "")
    with pytest.raises(ValidationError, match="its node has no checks"):
        in_catalog(table, {"Node": AGENT_NODE, "Address": "10.0.0.1", "Check": {"Name": "disk", "Status": "critical"}})
    assert edits.deregister_from_catalog(table, AGENT_NODE, "web-1", "").delete == (Key(AGENT_NODE, "web-1"),)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (CatalogLimits(services=1), "1 services"),
        (CatalogLimits(instances_per_service=1), "has 1 instances"),
        (CatalogLimits(instances_per_source=1), "1 instances are registered"),
    ],
)
def test_registrations_are_bounded_and_existing_ones_can_change(limits: CatalogLimits, told: str) -> None:
    table = RegistrationTable()
    registered(table, WEB)
    second = {**WEB, "ID": "web-2", "Check": None, "Name": "shop" if "services" in told else "web"}
    with pytest.raises(ValidationError, match=told):
        edits.register(table, read_service(second), BY, limits)
    if "instances are" in told:
        with pytest.raises(ValidationError, match=told):
            edits.register_in_catalog(table, read_catalog_registration(DB), BY, limits)
    assert edits.register(table, read_service({**WEB, "Port": 81}), BY, limits)


# Random requests, compared with a table without indexes


def _random_edit(table: RegistrationTable, chance: random.Random) -> Edit:
    id, node, service = chance.choice("ab"), chance.choice(("n1", "n2")), chance.choice(("web", "db"))
    check, status = chance.choice(("c1", "c2")), chance.choice(list(Health)[:3])
    address, port = f"10.0.0.{chance.randrange(1, 4)}", chance.randrange(1, 3)
    checks = [{"CheckID": check, "TTL": "10s"}] if chance.random() < 0.7 else []
    value = {"ID": id, "Name": service, "Address": address, "Port": port, "Checks": checks}
    given = {
        "Node": node,
        "Address": address,
        "SkipNodeUpdate": chance.random() < 0.5,
        "Service": {"ID": id, "Service": service, "Port": port} if chance.random() < 0.7 else None,
        "Check": {"CheckID": check, "Status": status, "ServiceID": chance.choice(("", id))}
        if chance.random() < 0.5
        else None,
    }
    return chance.choice(
        (
            lambda: edits.register(table, read_service(value), BY, LIMITS, replaces_checks=chance.random() < 0.5),
            lambda: edits.deregister(table, Key(AGENT_NODE, id)),
            lambda: edits.maintain(table, Key(AGENT_NODE, id), chance.random() < 0.5, ""),
            lambda: edits.update_check(table, CheckKey(AGENT_NODE, check), status, "told"),
            lambda: edits.expire_check(table, CheckKey(AGENT_NODE, check)),
            lambda: edits.remove_check(table, CheckKey(AGENT_NODE, check)),
            lambda: edits.register_in_catalog(table, read_catalog_registration(given), BY, LIMITS),
            lambda: edits.deregister_from_catalog(table, node, chance.choice(("", id)), chance.choice(("", check))),
        )
    )()


@given(st.integers(0, 2**32))
def test_after_any_requests_every_index_agrees_with_the_registrations(seed: int) -> None:
    chance, table = random.Random(seed), RegistrationTable()
    plain: dict[Key, Registration | RegisteredNode] = {}
    shown: dict[str, Any] = {}
    for _ in range(60):
        try:
            edit = _random_edit(table, chance)
        except XdsError:
            continue
        touched = table.apply(edit)
        for key in edit.delete:
            plain.pop(key, None)
        plain.update((one.key, one) for one in edit.put)
        _compare(table, plain)
        now = {service: table.instances(service) for service in ("web", "db")}
        changed = {service for service in now if set(now[service]) != set(shown.get(service, ()))}
        assert changed <= touched, "the catalog would not be told"
        shown = now


def _compare(table: RegistrationTable, plain: dict[Key, Registration | RegisteredNode]) -> None:
    nodes = {one.name: one for one in plain.values() if isinstance(one, RegisteredNode)}
    registrations = [one for one in plain.values() if isinstance(one, Registration)]
    for service in ("web", "db"):
        expected = {one.instance(nodes.get(one.node)) for one in registrations if one.service == service}
        assert set(table.instances(service)) == expected
        assert (service in table.services()) is bool(expected)
    for name in (AGENT_NODE, "n1", "n2"):
        assert {one.id for one in table.on_node(name)} == {one.id for one in registrations if one.node == name}
        for check in ("c1", "c2"):
            owners = [one for one in plain.values() if one.key.node == name and find_check(one, check) is not None]
            assert len(owners) <= 1
            assert table.owner(CheckKey(name, check)) == (owners[0] if owners else None)


def test_a_check_of_an_instance_that_is_not_there_is_refused() -> None:
    with pytest.raises(NotFoundError, match='ServiceID "x" does not exist'):
        edits.add_check(
            RegistrationTable(), Key(AGENT_NODE, "x"), read_check({"Name": "a", "ServiceID": "x", "TTL": "1s"})[1]
        )
