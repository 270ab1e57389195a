"""Kubernetes as a source, against a strict fake of its API.

tests/services/sources/test_kubernetes_soak.py has the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.kubernetes_api import (
    SERVICES,
    SLICES,
    FakeKubernetes,
    endpoint,
    endpoint_slice,
    no_complaints,
    refusal,
    service,
)
from tests.support.recording_sink import RecordingSink, running_source
from xds.services.core.instance import Health
from xds.services.source_settings import KubernetesSettings
from xds.services.sources.kubernetes import KubernetesSource
from xds.services.sources.kubernetes_client import ClientLimits
from xds.services.sources.kubernetes_credentials import ApiAccess

Json = dict[str, Any]

FAST = {"retry_s": 0.05, "longest_retry_s": 0.4}
QUICK_LIMITS = ClientLimits(connect_s=2.0, answer_s=1.0, silence_s=1.0, page_s=3.0)


class Access:
    """ClusterCredentials of a server without TLS; counts how often they are loaded."""

    def __init__(self, api: FakeKubernetes, token: str = "") -> None:
        self.token = token
        self.loads = 0
        self._api = api

    def load(self) -> ApiAccess:
        self.loads += 1
        return ApiAccess(self._api.url, token=self.token)


@pytest.fixture
async def api() -> AsyncIterator[FakeKubernetes]:
    """A running fake; whoever used it did nothing that no client should do."""
    async with FakeKubernetes() as started:
        with no_complaints(started):
            yield started


@contextlib.asynccontextmanager
async def following(
    api: FakeKubernetes, access: Access | None = None, limits: ClientLimits = QUICK_LIMITS, **changes: Any
) -> AsyncIterator[RecordingSink]:
    """A source that runs; what it gives is in the sink."""
    sink = RecordingSink()
    settings = KubernetesSettings(kind="kubernetes").model_copy(update={**FAST, **changes})
    source = KubernetesSource("k8s", settings, access or Access(api), limits)
    async with running_source(source, sink):
        yield sink


def fill(api: FakeKubernetes, services: int = 1, endpoints: int = 2) -> None:
    """Services ``s0`` ... with one slice each."""
    for i in range(services):
        api.put(service(f"s{i}"))
        api.put(endpoint_slice(f"s{i}-a", f"s{i}", *(endpoint(f"10.{i}.0.{j}") for j in range(1, endpoints + 1))))


def truth(api: FakeKubernetes) -> dict[str, set[str]]:
    """What the sink should have, from the objects of ``fill`` and their like."""
    found: dict[str, set[str]] = {}
    for place, one in api.objects(SERVICES).items():
        if one["spec"]["type"] != "ExternalName":
            found[f"{place[1]}.{place[0]}"] = set()
    for (namespace, _), one in api.objects(SLICES).items():
        name = f"{one['metadata']['labels']['kubernetes.io/service-name']}.{namespace}"
        if name in found:
            found[name] |= {f"{each['addresses'][0]}:{one['ports'][0]['port']}" for each in one["endpoints"]}
    return found


def seen(sink: RecordingSink) -> dict[str, set[str]]:
    return {name: sink.places(name) for name in sink.services}


async def settled(sink: RecordingSink, api: FakeKubernetes, timeout_s: float = 60.0) -> None:
    """Wait until the sink has what the API has."""
    try:
        await sink.wait_until(lambda: seen(sink) == truth(api), timeout_s)
    except TimeoutError:
        assert seen(sink) == truth(api)


# Lists and watches


async def test_everything_is_given_once_both_collections_were_listed(api: FakeKubernetes) -> None:
    """Services without their slices would look like services that lost everything."""
    fill(api, 5)
    api.forbidden.add("/apis/discovery.k8s.io/v1/endpointslices")
    async with following(api) as sink:
        await sink.wait_until(lambda: bool(sink.failures))
        await asyncio.sleep(0.3)
        assert not [call for call in sink.calls if call[0] in ("put", "replace", "alive")]
        assert "403 Forbidden: endpointslices is forbidden" in sink.failures[0]
        api.forbidden.clear()
        await settled(sink, api)
        assert [call[0] for call in sink.calls if call[0] in ("put", "replace")] == ["replace"]


async def test_an_empty_cluster_is_reported_as_empty(api: FakeKubernetes) -> None:
    async with following(api) as sink:
        await sink.wait_until(lambda: ("replace", "") in sink.calls)
        assert sink.services == {}


async def test_changes_arrive_by_the_watches_without_another_list(api: FakeKubernetes) -> None:
    fill(api, 3)
    async with following(api) as sink:
        await settled(sink, api)
        lists = api.kinds["list"]
        api.put(service("new"), endpoint_slice("new-a", "new", endpoint("10.9.0.1")))
        await settled(sink, api)
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.1", ready=False), endpoint("10.0.0.7")))
        await settled(sink, api)
        assert {one.health for one in sink.services["s0.shop"]} == {Health.CRITICAL, Health.PASSING}
        api.delete(SLICES, "s1-a")
        await settled(sink, api)
        assert sink.services["s1.shop"] == ()
        api.delete(SERVICES, "s2")
        await settled(sink, api)
        assert "s2.shop" not in sink.services
        assert api.kinds["list"] == lists
        assert sink.calls.count(("replace", "")) == 1


async def test_a_slice_that_moves_to_another_service_leaves_the_first(api: FakeKubernetes) -> None:
    fill(api, 2)
    async with following(api) as sink:
        await settled(sink, api)
        api.put(endpoint_slice("s0-a", "s1", endpoint("10.0.0.1")))
        await settled(sink, api)
        assert sink.services["s0.shop"] == ()


async def test_slices_may_come_before_their_service_and_stay_after_it(api: FakeKubernetes) -> None:
    async with following(api) as sink:
        await sink.wait_until(lambda: bool(sink.calls))
        api.put(endpoint_slice("web-a", "web", endpoint("10.0.0.1")))
        await asyncio.sleep(0.3)
        assert not sink.services
        api.put(service("web"))
        await settled(sink, api)
        api.delete(SERVICES, "web")
        await settled(sink, api)
        api.put(service("web"))
        await settled(sink, api)
        assert sink.places("web.shop") == {"10.0.0.1:8080"}


async def test_a_service_that_becomes_an_external_name_is_removed_and_reported(api: FakeKubernetes) -> None:
    fill(api)
    async with following(api) as sink:
        await settled(sink, api)
        api.put(service("s0", ports=(), type="ExternalName", externalName="db.example.org"))
        await settled(sink, api)
        await sink.wait_until(lambda: [each.code for each in sink.findings] == ["external_name"])
        assert "s0.shop" not in sink.services


async def test_lists_come_in_pages_of_one_moment(api: FakeKubernetes) -> None:
    """A service that is created between two pages is not in the list, but in the watch behind it."""
    fill(api, 25)
    async with following(api, page_size=4) as sink:
        while api.kinds["list"] < 4:
            await asyncio.sleep(0)
        api.put(service("a-first"), endpoint_slice("a-first", "a-first", endpoint("10.200.0.1")))
        api.delete(SERVICES, "s0")
        await settled(sink, api)
        assert api.kinds["list"] >= 12


async def test_an_expired_continue_token_restarts_the_list(api: FakeKubernetes) -> None:
    fill(api, 25)
    api.faults.expired_pages = 2
    async with following(api, page_size=4) as sink:
        await settled(sink, api)
        assert not sink.failures


async def test_only_chosen_namespaces_are_read(api: FakeKubernetes) -> None:
    for namespace in ("shop", "bank", "other"):
        api.put(service("web", namespace), endpoint_slice("a", "web", endpoint("10.0.0.1"), namespace=namespace))
    async with following(api, namespaces=("shop", "bank")) as sink:
        await sink.wait_until(lambda: set(sink.services) == {"web.shop", "web.bank"})
        assert not [target for _, target in api.requests if "/namespaces/" not in target]
        # A list of one namespace says nothing of another.
        api.compact()
        api.cut()
        api.delete(SERVICES, "web", "bank")
        await sink.wait_until(lambda: set(sink.services) == {"web.shop"})
        assert sink.places("web.shop") == {"10.0.0.1:8080"}


async def test_only_objects_with_the_labels_are_read(api: FakeKubernetes) -> None:
    for name in ("web", "db"):
        one, two = service(name), endpoint_slice(name, name, endpoint("10.0.0.1"), labels={"app": name})
        one["metadata"]["labels"] = {"app": name}
        api.put(one, two)
    async with following(api, labels="app=web") as sink:
        await sink.wait_until(lambda: set(sink.services) == {"web.shop"})


# Resuming


async def test_a_watch_is_resumed_where_it_ended(api: FakeKubernetes) -> None:
    """The fake complains of a watch that begins elsewhere."""
    fill(api)
    async with following(api, watch_s=1.0, limits=ClientLimits(silence_s=5.0)) as sink:
        await settled(sink, api)
        for i in range(30):
            api.put(endpoint_slice("s0-a", "s0", endpoint(f"10.0.0.{i + 1}")))
            await asyncio.sleep(0.1)
        await settled(sink, api)
        assert api.kinds["watch"] >= 5
        assert api.kinds["list"] == 2
        assert not sink.failures


async def test_bookmarks_move_the_version_of_a_quiet_watch(api: FakeKubernetes) -> None:
    fill(api)
    api.bookmark_s = 0.05
    async with following(api, watch_s=1.0) as sink:
        await settled(sink, api)
        api.touch(500)
        await asyncio.sleep(0.3)
        api.compact()  # without the bookmark, the version of the list would be gone now
        watches = api.kinds["watch"]
        await sink.wait_until(lambda: api.kinds["watch"] >= watches + 4, 10)
        assert api.kinds["list"] == 2
        alive = sink.alive_n
        await sink.wait_until(lambda: sink.alive_n > alive)


async def test_connections_that_are_cut_are_resumed_without_a_list(api: FakeKubernetes) -> None:
    fill(api)
    async with following(api) as sink:
        await settled(sink, api)
        api.bookmark_s = 0.05
        for i in range(5):
            await asyncio.sleep(0.2)
            api.cut()
            api.put(endpoint_slice("s0-a", "s0", endpoint(f"10.0.1.{i + 1}")))
            await settled(sink, api)
        assert api.kinds["list"] == 2
        assert not sink.failures  # the next attempt succeeded


async def test_a_version_that_is_gone_lists_again_and_drops_nothing(api: FakeKubernetes) -> None:
    fill(api, 4)
    async with following(api) as sink:
        await settled(sink, api)
        api.cut()
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.9")))
        api.put(service("other"))
        api.compact()
        await settled(sink, api)
        assert api.kinds["list"] == 4
        assert not [call for call in sink.calls if call[0] == "remove"]
        assert not sink.failures


async def test_a_watch_that_is_gone_at_once_again_and_again_is_listed_ever_more_slowly(api: FakeKubernetes) -> None:
    fill(api)
    api.faults.expired_watches = 1_000_000
    async with following(api, retry_s=0.05) as sink:
        await settled(sink, api)
        await asyncio.sleep(1.5)
        assert 4 <= api.kinds["list"] <= 14  # two collections
        assert sink.services


async def test_while_a_list_is_read_everything_stays(api: FakeKubernetes) -> None:
    """Each page of the new list fails in turn."""
    fill(api, 8)
    async with following(api, page_size=2) as sink:
        await settled(sink, api)
        before = dict(sink.services)
        api.compact()
        for _ in range(6):
            api.faults.answers = [refusal(500, "InternalError", "etcdserver: leader changed")] * 3
            api.cut()
            await asyncio.sleep(0.1)
            assert sink.services == before
        await sink.wait_until(lambda: any("leader changed" in message for message in sink.failures))
        alive = sink.alive_n
        await sink.wait_until(lambda: sink.alive_n > alive)
        await settled(sink, api)


# Servers that die, lie, or say nothing


async def test_a_server_that_is_killed_and_back_keeps_the_last_good_set(api: FakeKubernetes) -> None:
    fill(api, 3)
    async with following(api) as sink:
        await settled(sink, api)
        before = dict(sink.services)
        await api.kill()
        await sink.wait_until(lambda: bool(sink.failures))
        assert sink.services == before
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.77")))
        await api.start()
        await settled(sink, api)
        assert api.kinds["list"] == 2


@pytest.mark.parametrize("version", [5, 500_000])
async def test_a_server_that_is_back_with_nothing_says_so_at_once(api: FakeKubernetes, version: int) -> None:
    """All at once, so that the catalog can hold the loss. The history is another one, with versions of its own."""
    fill(api, 3)
    async with following(api, relist_s=1.0) as sink:
        await settled(sink, api)
        calls = len(sink.calls)
        await api.kill()
        api.lose_everything(version)
        await api.start()
        await sink.wait_until(lambda: not sink.services)
        told = [call for call in sink.calls[calls:] if call[0] in ("put", "remove", "replace")]
        assert told == [("replace", "")]


async def test_a_version_that_went_back_is_found_although_the_watch_says_nothing(api: FakeKubernetes) -> None:
    """The real API server accepts a watch from a version of the future, and is silent until that comes."""
    fill(api, 2)
    async with following(api) as sink:
        await settled(sink, api)
        await api.kill()
        api.lose_everything(3)
        api.put(service("s0"), endpoint_slice("s0-a", "s0", endpoint("10.44.0.1")))
        await api.start()
        await settled(sink, api)


async def test_a_watch_that_is_silently_dead_is_ended(api: FakeKubernetes) -> None:
    fill(api)
    async with following(api, limits=ClientLimits(silence_s=0.5)) as sink:
        await settled(sink, api)
        api.faults.is_silent = True
        api.cut()
        await asyncio.sleep(0.2)
        api.faults.is_silent = False
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.9")))
        await settled(sink, api, 5)
        assert api.kinds["list"] == 2


async def test_a_watch_that_trickles_but_never_ends_is_ended(api: FakeKubernetes) -> None:
    """Bytes come, but no event and no end."""
    fill(api)
    async with following(api, watch_s=1.0, limits=ClientLimits(silence_s=0.6)) as sink:
        await settled(sink, api)
        api.faults.trickles = True
        api.cut()
        await asyncio.sleep(0.3)
        api.faults.trickles = False
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.9")))
        await settled(sink, api, 6)


async def test_a_server_that_never_answers_is_reported(api: FakeKubernetes) -> None:
    fill(api)
    api.faults.holds_answers = True
    async with following(api, limits=ClientLimits(answer_s=0.3)) as sink:
        await sink.wait_until(lambda: any("ReadTimeout" in message for message in sink.failures))
        api.faults.holds_answers = False
        await settled(sink, api)


async def test_changes_that_a_watch_missed_are_found_by_the_next_list(api: FakeKubernetes) -> None:
    fill(api)
    async with following(api, relist_s=0.5) as sink:
        await settled(sink, api)
        api.lose_events()
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.9")))
        api.lose_events()
        await settled(sink, api)


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"[]\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "EATEN", "object": {}}\n',
        b'{"type": "ADDED", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {}}}\n',
        b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: no leader"}}\n',
        b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}\n',
        b"x" * 100_000,
        b"[" * 90_000 + b"\n",
    ],
)
async def test_a_watch_that_says_nonsense_is_begun_again(api: FakeKubernetes, line: bytes) -> None:
    fill(api)
    async with following(api, limits=ClientLimits(event_bytes=95_000)) as sink:
        await settled(sink, api)
        before = dict(sink.services)
        api.faults.lines = [line]
        api.cut()
        await asyncio.sleep(0.5)
        assert sink.services == before
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.9")))
        await settled(sink, api)


async def test_an_unreadable_object_keeps_its_last_state_and_is_reported(api: FakeKubernetes) -> None:
    fill(api, 2)
    async with following(api) as sink:
        await settled(sink, api)
        broken = endpoint_slice("s0-a", "s0", endpoint("10.0.0.9"))
        broken["endpoints"][0]["conditions"] = "fine"
        api.put(broken)
        await sink.wait_until(lambda: bool(sink.findings))
        assert sink.findings[-1].pointer == "/endpointslices/shop/s0-a"
        assert sink.places("s0.shop") == {"10.0.0.1:8080", "10.0.0.2:8080"}
        api.cut()
        api.touch()
        api.compact()  # a list has it too
        await sink.wait_until(lambda: api.kinds["list"] >= 4)
        await asyncio.sleep(0.3)
        assert sink.places("s0.shop") == {"10.0.0.1:8080", "10.0.0.2:8080"}
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.9")))
        await settled(sink, api)
        sink.findings.clear()
        api.put(service("s1", ports=(("", 81),)))
        await sink.wait_until(lambda: not sink.rejected_now and sink.calls[-1][0] != "put")


async def test_an_unreadable_object_that_was_deleted_is_no_longer_reported(api: FakeKubernetes) -> None:
    fill(api, 2)
    async with following(api) as sink:
        await settled(sink, api)
        broken = endpoint_slice("broken", "s0", endpoint("10.0.0.9"))
        broken["endpoints"] = "none"
        api.put(broken)
        await sink.wait_until(lambda: bool(sink.rejected_now))
        api.cut()
        api.delete(SLICES, "broken")
        api.touch()
        api.compact()  # the event is gone: only the list says so
        await sink.wait_until(lambda: not sink.rejected_now)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusal(500, "InternalError", "etcdserver: request timed out"), "500 InternalError: etcdserver"),
        ((200, b"<html>login</html>", {}), "the answer is not valid JSON"),
        ((200, b"{}", {}), "expected ServiceList|expected EndpointSliceList"),
        ((200, b'{"kind": "PodList", "apiVersion": "v1"}', {}), "got 'PodList' of 'v1'"),
        ((302, b"", {"location": "http://127.0.0.1:1/"}), "302"),
        ((200, b"[" * 200_000, {}), "the answer is not valid JSON"),
        ((200, b" " * 300_000, {}), "an answer of more than 250000 bytes"),
        ((403, b"<html>", {}), "the answer is not a Status object of Kubernetes"),
    ],
)
async def test_an_answer_that_is_no_list_is_reported_and_requested_again(
    api: FakeKubernetes, answer: Any, message: str
) -> None:
    fill(api)
    api.faults.answers = [answer]
    async with following(api, limits=ClientLimits(page_bytes=250_000)) as sink:
        await settled(sink, api)
        (told,) = sink.failures
        assert re.search(message, told), told


async def test_retry_after_of_the_server_is_respected(api: FakeKubernetes) -> None:
    fill(api)
    api.faults.answers = [refusal(429, "TooManyRequests", "slow down", retry_after="1")] * 2
    async with following(api, longest_retry_s=5.0) as sink:
        await settled(sink, api)
        times = sorted(at for at, _ in api.requests)
        assert times[2] - times[1] >= 0.95


async def test_attempts_while_the_server_is_away_are_few(api: FakeKubernetes) -> None:
    fill(api)
    async with following(api, retry_s=0.05, longest_retry_s=0.5) as sink:
        await settled(sink, api)
        await api.kill()
        await asyncio.sleep(2)
        assert 5 <= len(sink.failures) <= 24  # two collections


async def test_a_server_that_is_away_at_the_start_is_found_soon(api: FakeKubernetes) -> None:
    """Lists are spaced after lists that were read, not after attempts."""
    fill(api)
    await api.kill()
    async with following(api, retry_s=0.1, longest_retry_s=0.3) as sink:
        await sink.wait_until(lambda: len(sink.failures) >= 20)  # two collections
        await api.start()
        await settled(sink, api, 2)


async def test_the_delay_is_reset_after_a_watch(api: FakeKubernetes) -> None:
    fill(api)
    async with following(api, retry_s=0.1, longest_retry_s=60.0) as sink:
        await settled(sink, api)
        await api.kill()
        await asyncio.sleep(3)  # the next delay would be 3 seconds or more
        await api.start()
        alive = sink.alive_n
        await sink.wait_until(lambda: sink.alive_n > alive + 5)
        failures = len(sink.failures)
        api.faults.answers = [refusal(500)] * 4
        api.cut()
        await sink.wait_until(lambda: len(sink.failures) >= failures + 4)
        api.put(endpoint_slice("s0-a", "s0", endpoint("10.0.0.9")))
        await settled(sink, api, 2.0)


async def test_a_watch_that_ends_at_once_is_not_begun_again_at_once(api: FakeKubernetes) -> None:
    fill(api)
    api.faults.ends_watches = True
    async with following(api, retry_s=0.05, longest_retry_s=0.5) as sink:
        await settled(sink, api)
        watches = api.kinds["watch"]
        await asyncio.sleep(1.5)
        assert api.kinds["watch"] - watches <= 20
        assert any("in a row ended at once" in message for message in sink.failures)


# Floods and bounds


async def test_a_flood_of_events_is_put_as_few_changes(api: FakeKubernetes) -> None:
    fill(api)
    async with following(api) as sink:
        await settled(sink, api)
        for i in range(500):
            api.put(endpoint_slice("s0-a", "s0", endpoint(f"10.0.{i % 200}.1")))
            if i % 50 == 0:
                await asyncio.sleep(0.01)
        await settled(sink, api)
        assert len([call for call in sink.calls if call[0] == "put"]) <= 20


async def test_events_beyond_the_rate_wait_at_the_server(api: FakeKubernetes) -> None:
    fill(api, 1)
    async with following(api, events_per_s=50) as sink:
        await settled(sink, api)
        began = asyncio.get_running_loop().time()
        for i in range(150):
            api.put(endpoint_slice("s0-a", "s0", endpoint(f"10.0.{i}.1")))
        await settled(sink, api)
        assert asyncio.get_running_loop().time() - began >= 1.0


async def test_services_and_endpoints_beyond_the_limits_are_left_out_and_reported(api: FakeKubernetes) -> None:
    fill(api, 10, endpoints=3)
    async with following(api, services_limit=4, endpoints_limit=9, relist_s=0.5, watch_s=1.0) as sink:
        await sink.wait_until(lambda: bool(sink.findings))
        assert len(sink.services) == 4
        assert {each.code for each in sink.findings} == {"too_many"}
        for i in range(7):
            api.delete(SERVICES, f"s{i}")
            api.delete(SLICES, f"s{i}-a")
        await settled(sink, api)
        await sink.wait_until(lambda: not sink.rejected_now)


async def test_a_status_that_changes_nothing_is_not_put(api: FakeKubernetes) -> None:
    """Kubernetes writes to slices what is of no interest here, such as the time of the last change."""
    fill(api)
    async with following(api) as sink:
        await settled(sink, api)
        calls = [call for call in sink.calls if call[0] == "put"]
        one = endpoint_slice("s0-a", "s0", endpoint("10.0.0.1"), endpoint("10.0.0.2"))
        one["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": "now"}
        api.put(one)
        await asyncio.sleep(0.5)
        assert [call for call in sink.calls if call[0] == "put"] == calls


# ClusterCredentials while it runs


async def test_a_refused_token_is_read_again(api: FakeKubernetes) -> None:
    fill(api)
    api.tokens = {"new"}
    access = Access(api, token="old")
    async with following(api, access=access) as sink:
        await sink.wait_until(lambda: any("401 Unauthorized" in message for message in sink.failures))
        assert not any("old" in message for message in sink.failures)
        access.token = "new"
        await settled(sink, api)


# At random


async def test_after_any_faults_the_sink_has_the_instances_of_the_api(api: FakeKubernetes) -> None:
    """Equal sets after every step of a long random run."""
    chance = random.Random(18)
    fill(api, 4)
    async with following(api, page_size=3, watch_s=1.0) as sink:
        for _step in range(60):
            _write_at_random(api, chance)
            match chance.randrange(8):
                case 0:
                    api.cut()
                case 1:
                    api.compact()
                    api.cut()
                case 2:
                    api.faults.expired_watches = 1
                    api.cut()
                case 3:
                    await api.kill()
                    _write_at_random(api, chance)
                    await api.start()
                case 4:
                    api.faults.answers = [refusal(chance.choice((401, 429, 500, 503)))]
                case 5:
                    api.touch(chance.randrange(1, 20))
            if chance.random() < 0.7:
                await settled(sink, api, 15)
        await settled(sink, api, 15)


def _write_at_random(api: FakeKubernetes, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 6)):
        name = f"s{chance.randrange(8)}"
        slices = sorted(place[1] for place in api.objects(SLICES))
        services = sorted(place[1] for place in api.objects(SERVICES))
        match chance.randrange(5):
            case 0:
                api.put(service(name))
            case 1 if services:
                api.delete(SERVICES, chance.choice(services))
            case 2 if slices:
                api.delete(SLICES, chance.choice(slices))
            case _:
                some = chance.sample(range(1, 250), chance.randrange(6))
                one = f"{name}-{chance.choice('ab')}"
                api.put(endpoint_slice(one, name, *(endpoint(f"10.0.0.{i}") for i in some)))


async def test_no_secret_is_in_reports(api: FakeKubernetes) -> None:
    api.tokens = {"right"}
    async with following(api, access=Access(api, token="s3cr3t-token")) as sink:
        await sink.wait_until(lambda: len(sink.failures) >= 2)
        assert "s3cr3t-token" not in json.dumps(sink.calls)
        assert "s3cr3t-token" not in repr(ApiAccess("http://x", token="s3cr3t-token"))
