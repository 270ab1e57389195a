"""The names by which the HTTP port may be called."""

from __future__ import annotations

from xds.app.ports import browser_rules
from xds.app.settings import load_settings


def test_the_advertised_name_is_a_name_of_the_server() -> None:
    """Other servers call it by that name, also where `server.http.hosts` has only the names that clients use."""
    flags = {"server": {"advertise": "https://xds-1.internal:18080", "http": {"hosts": ["xds"]}}}
    rules = browser_rules(load_settings(flags=flags))
    assert rules.is_own_host("xds-1.internal:18080")
    assert rules.is_own_host("xds")
    assert not rules.is_own_host("xds-2.internal")
