"""Values of other types and texts that cannot be encoded: they are left out and reported, and the rest is served."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.test_catalog import instances, shown
from tests.services.test_catalog_bounds import RecordedCatalog
from xds.model.errors import Violation
from xds.model.node import Locality
from xds.services.core.instance import Check, Health, Instance, check_instance

HALF = "\ud800"  # of a surrogate pair: JSON can say it, UTF-8 cannot
A_TEXT: Any = "passing"  # where a member of `Health` belongs


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"id": 7}, "id"),
        ({"id": HALF}, "id"),
        ({"port": "80"}, "port"),
        ({"port": True}, "port"),
        ({"weight": 1.5}, "weight"),
        ({"meta": {"version": 2}}, "meta"),
        ({"meta": {HALF * 200: "v2"}}, "meta"),
        ({"node_meta": {"rack": HALF}}, "node_meta"),
        ({"tags": None}, "tags"),
        ({"tags": (HALF,)}, "tags"),
        ({"ports": {"admin": "9901"}}, "ports"),
        ({"locality": "eu-1"}, "locality"),
        ({"locality": Locality(zone=HALF)}, "locality"),
        ({"datacenter": None}, "datacenter"),
        ({"checks": ("passing",)}, "checks"),
        ({"checks": (Check("ready", A_TEXT),)}, "checks"),
        ({"checks": (Check("ready", Health.PASSING, output=HALF),)}, "checks"),
    ],
)
async def test_an_instance_with_unusable_values_is_left_out_and_the_rest_is_served(
    wrong: dict[str, Any], field: str
) -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "python")
    fields: dict[str, Any] = {"id": "x", "address": "10.0.0.9", "port": 80}
    sink.put("web", [Instance(**fields | wrong), *instances(1)])
    sink.put("api", instances(1))
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web") == shown(recorded.catalog, "api") == {"i1": Health.PASSING}
    (found,) = recorded.catalog.findings("a")
    assert (found.resource, found.code, found.pointer) == ("web", "invalid_value", f"/0/{field}")
    assert str(found).encode()


def test_texts_in_other_scripts_are_usable() -> None:
    one = Instance("\u00e4", "10.0.0.1", 8080, meta={"\u043a": "\U0001f600"}, ports={"a": 1}, tags=("\u65e5",))
    assert check_instance(one) == []


async def test_values_of_sources_can_be_shown_whatever_bytes_they_have() -> None:
    """Names of files are bytes, and Python has those that are not UTF-8 as half surrogate pairs."""
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    sink.put(f"web{HALF}", [])
    sink.rejected([Violation("unreadable", f"{HALF} is odd", source=f"/targets/caf{HALF}.json", pointer=f"/{HALF}")])
    sink.failed(f"caf{HALF}.json: no such file")
    await recorded.catalog.tick()
    assert recorded.catalog.statuses()[0].message == "caf\\ud800.json: no such file"
    found = recorded.catalog.findings("a")
    assert [each.code for each in found] == ["unreadable", "invalid_service_name"]
    assert all("\\ud800" in str(each) and str(each).encode() for each in found)
