"""A tick at exactly the deadline of a stream acts, whatever the clock shows: sums of floats are rounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spec.by_hand import start
from tests.support.examples import examples
from tests.support.sansio import Client, Server
from tests.support.texts import joined, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.protocol.dialect import Variant

TICKS = 60  # heartbeats go on without end
instants = st.floats(min_value=0.0, max_value=1e9)
delays = st.floats(min_value=0.0, max_value=4.0)


@pytest.mark.hypothesis
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
@given(began_s=instants, pause_s=delays, ttl_s=st.floats(min_value=0.1, max_value=60.0))
@examples(60)
def test_a_tick_at_the_deadline_acts(variant: Variant, began_s: float, pause_s: float, ttl_s: float) -> None:
    """Newer content behind an unanswered response, cold clusters, what lingers, heartbeats."""
    server = Server()
    server.now = began_s
    client = Client(server, variant)
    push(server, site("a"), ttls={CLUSTER: ttl_s})
    start(client)
    for name, load in (("b", "1"), ("c", "2")):
        server.now += pause_s
        push(server, joined(site(name, load=load), {ENDPOINT: {"a": load}}), ttls={CLUSTER: ttl_s})
    for _ in range(TICKS):
        due_s = client.stream.deadline()
        if due_s is None:
            return
        server.now = max(server.now, due_s)
        events = client.take(client.stream.tick(server.now))
        after_s = client.stream.deadline()
        assert events or after_s is None or after_s > due_s, f"nothing happens at {due_s}"
