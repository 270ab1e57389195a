"""Heartbeats that another server has received, asked for over its HTTP port."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Site
from tests.services.test_registration import BY, WEB
from tests.support.http_peer import serving
from xds.services.core.registered_instance import AGENT_NODE, CheckKey
from xds.services.core.registration_rules import read_service
from xds.services.heartbeats_elsewhere import HELD_S, remaining_elsewhere
from xds.services.served import ServedServices

CHECK, OTHER = CheckKey(AGENT_NODE, "service:web-1"), CheckKey(AGENT_NODE, "unknown")


async def test_what_another_server_has_heard_counts(site: Site) -> None:
    others = site["a"].services.others
    assert await remaining_elsewhere(others, [CHECK, OTHER]) == {}
    registrations = site["b"].services.feature(ServedServices, "services").registrations
    registrations.start()
    await registrations.register(read_service(WEB), BY)
    remaining = await remaining_elsewhere(others, [CHECK, OTHER])
    assert remaining.keys() == {CHECK} and 5 < remaining[CHECK] <= 10


async def test_while_a_server_is_silent_every_check_is_held(site: Site, silent: str) -> None:
    site.rows[1] = type(site.rows[1])("b", silent)
    others = site["a"].services.others
    assert await remaining_elsewhere(others, [CHECK, OTHER]) == {CHECK: HELD_S, OTHER: HELD_S}


@pytest.mark.parametrize("told", [{}, {"remaining": [["node", "id"]]}, {"remaining": [["node", "id", "soon"]]}, [1]])
async def test_while_a_server_answers_in_another_form_every_check_is_held(site: Site, told: object) -> None:
    with serving() as peer:
        peer.answers(200, told)
        site.rows[1] = type(site.rows[1])("b", peer.url)
        others = site["a"].services.others
        assert await remaining_elsewhere(others, [CHECK, OTHER]) == {CHECK: HELD_S, OTHER: HELD_S}
