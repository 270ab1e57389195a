"""The Consul source against a Consul in memory. `test_consul_agent.py` has the same steps with a real agent."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_consul import FakeConsul
from tests.support.pki import CertificateAuthority
from tests.support.recording_sink import RecordingSink, running_source
from xds.services.core.instance import Health
from xds.services.source_settings import ConsulSettings
from xds.services.sources.consul_source import ConsulSource

FAST = ConsulSettings(kind="consul", every_s=0.01, wait_s=5.0, queries_per_s=10_000.0)


@asynccontextmanager
async def observing(
    consul: FakeConsul, *services: str, late_s: float = 1.0, answer_bytes: int = 1 << 20, **changes: Any
) -> AsyncIterator[RecordingSink]:
    """The sink of a source that reads ``services`` of ``consul``."""
    sink = RecordingSink(*services)
    settings = FAST.model_copy(update={"address": consul.address, **changes})
    source = ConsulSource("consul", settings, late_s=late_s, answer_bytes=answer_bytes)
    async with running_source(source, sink):
        yield sink


@pytest.fixture
async def consul() -> AsyncIterator[FakeConsul]:
    async with FakeConsul() as running:
        yield running


async def test_instances_come_change_and_go(consul: FakeConsul) -> None:
    await consul.register("web", "web-1", "10.0.0.1", 80, meta={"version": "v1"}, tags=["a"])
    async with observing(consul, "web") as sink:
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80"})
        (one,) = sink.services["web"]
        assert (one.id, one.node, dict(one.meta), one.tags) == ("one/web-1", "one", {"version": "v1"}, ("a",))
        await consul.register("web", "web-2", "10.0.0.2", 80, weights={"Passing": 10, "Warning": 3})
        await sink.wait_until(lambda: len(sink.services["web"]) == 2)
        assert [(each.weight, each.warning_weight) for each in sink.services["web"]] == [(1, 1), (10, 3)]
        await consul.register("web", "web-2", "10.0.0.2", 80, status="critical")
        await sink.wait_until(lambda: sink.services["web"][1].health is Health.CRITICAL)
        await consul.deregister("web", "web-1")
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.2:80"})
        await consul.deregister("web", "web-2")
        await sink.wait_until(lambda: sink.services["web"] == ())
    assert sink.failures == []


async def test_equal_sets_after_every_step_of_a_random_run(consul: FakeConsul) -> None:
    rng = random.Random(18)
    services = [f"svc-{number}" for number in range(6)]
    async with observing(consul, *services) as sink:
        there: dict[str, dict[str, str]] = {service: {} for service in services}
        for _ in range(120):
            service, identifier = rng.choice(services), f"i{rng.randrange(5)}"
            if identifier in there[service] and rng.random() < 0.5:
                await consul.deregister(service, identifier)
                del there[service][identifier]
            else:
                place = f"10.1.0.{rng.randrange(250)}"
                await consul.register(service, identifier, place, 80)
                there[service][identifier] = f"{place}:80"
            if rng.random() < 0.05:
                await consul.stop()
                await consul.start()
            await sink.wait_for_places(service, there[service].values())
        assert {service: sink.places(service) for service in services} == {
            service: set(places.values()) for service, places in there.items()
        }


@pytest.mark.parametrize(
    ("wait_s", "pause_s"), [(60.0, 0.3), (1.0, 0.0)], ids=["while it waits for news", "between two queries"]
)
async def test_an_index_that_goes_back_is_forgotten(consul: FakeConsul, wait_s: float, pause_s: float) -> None:
    """A query with the greater index of before blocks until its wait ends: only a cut query shows a restart at once."""
    for _ in range(20):
        await consul.register("web", "web-1", "10.0.0.1", 80)
    async with observing(consul, "web", wait_s=wait_s) as sink:
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80"})
        await asyncio.sleep(pause_s)
        await consul.stop()
        await consul.forget()
        await consul.start()
        await consul.register("web", "web-1", "10.0.0.9", 80)
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.9:80"})


async def test_a_server_that_starts_again_is_asked_for_all_that_it_committed(consul: FakeConsul) -> None:
    """A real one that was killed lets instances come back that went long ago: it answers before its log is applied."""
    await consul.register("web", "web-1", "10.0.0.1", 80)
    async with observing(consul, "web", wait_s=1.0) as sink:
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80"})
        await consul.stop()
        await sink.wait_until(lambda: bool(sink.failures))
        consul.old_body = b"[]"
        await consul.start()
        await sink.wait_until(lambda: sink.calls[-1] == ("alive", ""))
        consul.old_body = None
        await consul.register("web", "web-2", "10.0.0.2", 80)
        await sink.wait_until(lambda: len(sink.places("web")) == 2)
        assert [call for call in sink.calls if call[0] == "put"] == [("put", "web")] * 2


async def test_an_index_without_news_gives_on_nothing(consul: FakeConsul) -> None:
    await consul.register("web", "web-1", "10.0.0.1", 80)
    async with observing(consul, "web") as sink:
        await sink.wait_until(lambda: "web" in sink.services)
        for _ in range(5):
            asked = consul.asked["/v1/health/service/web"]
            await consul.touch("web")
            while consul.asked["/v1/health/service/web"] == asked:
                await asyncio.sleep(0.005)
        assert [call for call in sink.calls if call[0] == "put"] == [("put", "web")]


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "leaderless": ({"status": 500}, "500 No cluster leader"),
    "forbidden": ({"status": 403}, "403 ACL not found"),
    "limited": ({"status": 429}, "429"),
    "other": ({"index_header": False}, "is this a Consul?"),
    "filtered": ({"filtered": True, "body": b"[]"}, "may not read"),
    "html": ({"body": b"<html>"}, "not valid JSON"),
    "deep": ({"body": b"[" * 4_000}, "not valid JSON"),
    "object": ({"body": b'{"Node": 1}'}, "must be a list"),
    "port": ({"body": b'[{"Node": {"Node": "n"}, "Service": {"Port": "80"}}]'}, "Port must be an integer"),
    "meta": ({"body": b'[{"Service": {"Meta": {"a": 1}}}]'}, "a value of Meta must be a string"),
    "status": ({"body": b'[{"Checks": [{"Status": "fine"}]}]'}, "the status of a check"),
    "flood": ({"body": b"[" + b" " * 5_000 + b"]"}, "longer than 4096 bytes"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_malformed_answer_is_reported_and_changes_nothing(consul: FakeConsul, name: str) -> None:
    fault, told = FAULTS[name]
    await consul.register("web", "web-1", "10.0.0.1", 80)
    async with observing(consul, "web", answer_bytes=4096) as sink:
        await sink.wait_until(lambda: "web" in sink.services)
        for member, value in fault.items():
            setattr(consul, member, value)
        await consul.touch("web")
        await sink.wait_until(lambda: any(told in message for message in sink.failures))
        assert sink.places("web") == {"10.0.0.1:80"}
        for member in fault:
            setattr(consul, member, getattr(FakeConsul(), member))
        seen = sink.alive_n
        await consul.register("web", "web-2", "10.0.0.2", 80)
        await sink.wait_until(lambda: len(sink.places("web")) == 2 and sink.alive_n > seen)


async def test_instances_that_the_token_may_not_read_are_reported(consul: FakeConsul) -> None:
    await consul.register("web", "web-1", "10.0.0.1", 80)
    consul.filtered = True
    async with observing(consul, "web") as sink:
        await sink.wait_until(lambda: "web" in sink.services)
        await sink.wait_until(lambda: bool(sink.findings))
        assert [(each.code, each.pointer) for each in sink.findings] == [("filtered", "/web")]


async def test_one_service_that_cannot_be_read_is_reported_and_the_others_go_on(consul: FakeConsul) -> None:
    """The source as a whole is read: it must not be shown as failing because of one service."""
    await consul.register("web", "web-1", "10.0.0.1", 80)
    await consul.register("odd", "odd-1", "10.0.0.1", 80, status="fine")
    async with observing(consul, "web", "odd") as sink:
        await sink.wait_until(lambda: "web" in sink.services and bool(sink.findings))
        await consul.register("web", "web-1", "10.0.0.2", 80)
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.2:80"})
        assert [(each.code, each.pointer) for each in sink.findings] == [("unreadable", "/odd")]
        assert sink.failures == []
        await consul.register("odd", "odd-1", "10.0.0.1", 80)
        await sink.wait_until(lambda: "odd" in sink.services and sink.calls[-1] == ("rejected", ""))


async def test_an_answer_of_a_server_without_leader_counts_only_where_stale_ones_do_not(consul: FakeConsul) -> None:
    """With ``stale`` any server answers, one that is cut off from the others as well: what it says may be old."""
    await consul.register("web", "web-1", "10.0.0.1", 80)
    consul.known_leader = False
    async with observing(consul, "web", stale=True) as sink:
        await sink.wait_until(lambda: any("lost its leader" in each.detail for each in sink.findings))
        assert sink.services == {}


async def test_a_consul_that_does_not_answer_is_reported_and_asked_again(consul: FakeConsul) -> None:
    """Connections that are silently dead: no query waits for ever."""
    await consul.register("web", "web-1", "10.0.0.1", 80)
    async with observing(consul, "web", wait_s=0.1, late_s=0.2) as sink:
        await sink.wait_until(lambda: "web" in sink.services)
        consul.delay_s = 60.0
        await sink.wait_until(lambda: bool(sink.failures))
        consul.delay_s = 0.0
        await consul.register("web", "web-1", "10.0.0.2", 80)
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.2:80"}, timeout_s=30.0)


async def test_only_used_services_are_read(consul: FakeConsul) -> None:
    for service in ("web", "db", "cache"):
        await consul.register(service, f"{service}-1", "10.0.0.1", 80)
    async with observing(consul, "web") as sink:
        await sink.wait_until(lambda: "web" in sink.services)
        sink.want("web", "db")
        await sink.wait_until(lambda: "db" in sink.services)
        sink.want("db")
        await sink.wait_until(lambda: "web" not in sink.services)
        asked = consul.asked["/v1/health/service/web"]
        await consul.register("web", "web-2", "10.0.0.2", 80)
        await consul.register("db", "db-2", "10.0.0.2", 80)
        await sink.wait_until(lambda: len(sink.services["db"]) == 2)
        assert consul.asked["/v1/health/service/web"] == asked
    assert "/v1/health/service/cache" not in consul.asked


async def test_more_services_than_connections_are_asked_in_rotation(consul: FakeConsul) -> None:
    """Consul refuses connections beyond its limit, so the source never opens more than its bound."""
    services = [f"svc-{number:02}" for number in range(40)]
    for service in services:
        await consul.register(service, "i", "10.0.0.1", 80)
    async with observing(consul, *services, connections=8) as sink:
        await sink.wait_until(lambda: len(sink.services) == len(services))
        for service in random.Random(5).sample(services, 10):
            await consul.register(service, "i", "10.0.0.2", 80)
            await sink.wait_for_places(service, {"10.0.0.2:80"})
        assert consul.most_open_n <= 8
        sink.want(*services[:5])  # back to one blocking query each
        await sink.wait_until(lambda: len(sink.services) == 5)
        await consul.register(services[0], "i", "10.0.0.3", 80)
        await sink.wait_until(lambda: sink.places(services[0]) == {"10.0.0.3:80"})
    assert consul.most_open_n <= 8


async def test_a_service_that_changes_all_the_time_is_read_at_a_bounded_rate(consul: FakeConsul) -> None:
    async with observing(consul, "web", every_s=0.2) as sink:
        await sink.wait_until(lambda: "web" in sink.services)
        before, started = consul.asked["/v1/health/service/web"], asyncio.get_running_loop().time()
        for number in range(200):
            await consul.register("web", "i", f"10.0.0.{number}", 80)
            await asyncio.sleep(0.005)
        passed_s = asyncio.get_running_loop().time() - started
        assert consul.asked["/v1/health/service/web"] - before <= passed_s / 0.2 + 2
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.199:80"})


async def test_all_queries_together_have_a_bounded_rate(consul: FakeConsul) -> None:
    services = [f"svc-{number:02}" for number in range(30)]
    async with observing(consul, *services, connections=6, queries_per_s=50.0) as sink:
        await sink.wait_until(lambda: len(sink.services) == len(services))
        asked, started = sum(consul.asked.values()), asyncio.get_running_loop().time()
        await asyncio.sleep(1.0)
        passed_s = asyncio.get_running_loop().time() - started
        assert 0 < sum(consul.asked.values()) - asked <= passed_s * 50 + 10


async def test_the_token_is_read_again_when_its_file_changes(consul: FakeConsul, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with observing(consul, "web", token_path=token) as sink:
        await sink.wait_until(lambda: "web" in sink.services)
        assert set(consul.tokens) == {"first"}
        rotated = tmp_path / "rotated"
        rotated.write_text("second\n")
        rotated.replace(token)
        await consul.register("web", "web-1", "10.0.0.1", 80)
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80"})
        await consul.register("web", "web-1", "10.0.0.2", 80)
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.2:80"})
        assert consul.tokens[-1] == "second"
        token.unlink()
        await consul.register("web", "web-1", "10.0.0.3", 80)
        await sink.wait_until(lambda: any("token file" in message for message in sink.failures))
        assert "second" not in "".join(sink.failures)


async def test_a_file_with_an_invalid_token_is_reported(consul: FakeConsul, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("caf\u00e9")
    async with observing(consul, "web", token_path=token) as sink:
        await sink.wait_until(lambda: any("no token" in message for message in sink.failures))
        assert "caf" not in "".join(sink.failures)
        token.write_text("first")
        await sink.wait_until(lambda: "web" in sink.services)


async def test_a_consul_that_is_not_there_yet_is_waited_for() -> None:
    consul = FakeConsul()
    await consul.start()
    await consul.stop()
    try:
        async with observing(consul, "web") as sink:
            await sink.wait_until(lambda: bool(sink.failures))
            await consul.register("web", "web-1", "10.0.0.1", 80)
            await consul.start()
            await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80"}, timeout_s=30.0)
    finally:
        await consul.stop()


async def test_the_addresses_of_another_datacenter_are_those_for_others(consul: FakeConsul) -> None:
    """Those tagged ``wan`` come first where the instance lives in another one, as Consul's own proxies have it."""
    tagged = {"wan": {"Address": "192.0.2.1", "Port": 8443}}
    await consul.register("web", "far", "10.0.0.1", 80, datacenter="dc2", tagged=tagged)
    await consul.register("web", "near", "10.0.0.2", 80, datacenter="dc1", tagged=tagged)
    await consul.register("web", "plain", "", 80, datacenter="dc2", node_tagged={"wan": "192.0.2.7"})
    async with observing(consul, "web", datacenter="dc2") as sink:
        await sink.wait_until(lambda: len(sink.services.get("web", ())) == 3)
        assert [(f"{each.address}:{each.port}", each.datacenter) for each in sink.services["web"]] == [
            ("192.0.2.1:8443", "dc2"),
            ("10.0.0.2:80", ""),
            ("192.0.2.7:80", "dc2"),
        ]


async def test_the_locality_may_stand_in_the_metadata(consul: FakeConsul) -> None:
    await consul.register("web", "a", "10.0.0.1", 80, node_meta={"region": "eu", "az": "eu-1"})
    await consul.register("web", "b", "10.0.0.2", 80, node_meta={"region": "eu", "az": "eu-1"}, meta={"az": "eu-2"})
    async with observing(consul, "web", region_meta="region", zone_meta="az") as sink:
        await sink.wait_until(lambda: len(sink.services.get("web", ())) == 2)
        assert [str(each.locality) for each in sink.services["web"]] == ["eu/eu-1", "eu/eu-2"]


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"address": "consul:8500"}, "expected http://HOST:PORT"),
        ({"address": "http://root:pw@consul:8500"}, "expected http://HOST:PORT"),
        ({"connections": 500}, "less than or equal to 200"),
        ({"token": "a", "token_path": "/t"}, "either token or token_path"),
        ({"certificate": "/c"}, "belong together"),
        ({"ca": "/c"}, "need an https address"),
    ],
)
def test_settings_that_cannot_hold_are_refused(section: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        ConsulSettings.model_validate({"kind": "consul", **section})


def test_a_token_is_shown_nowhere() -> None:
    section = ConsulSettings.model_validate({"kind": "consul", "token": "s3cret"})
    assert "s3cret" not in f"{section!r} {section.model_dump(mode='json')}"
    assert section.token is not None
    assert section.token.get_secret_value() == "s3cret"


async def test_a_consul_behind_tls_is_checked_and_shown_a_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    server, client = authority.issue("consul"), authority.issue("xds")
    asks = {"ssl_certfile": server.path, "ssl_keyfile": server.key_path, "ssl_ca_certs": str(authority.path)}
    async with FakeConsul(ssl_cert_reqs=ssl.CERT_REQUIRED, **asks) as consul:
        await consul.register("web", "web-1", "10.0.0.1", 80)
        section = ConsulSettings.model_validate(
            {
                "kind": "consul",
                "address": consul.address,
                "ca": authority.path,
                "certificate": client.path,
                "private_key": client.key_path,
            }
        )
        files: dict[str, Any] = {
            "ca": section.ca,
            "certificate": section.certificate,
            "private_key": section.private_key,
        }
        async with observing(consul, "web", **files) as sink:
            await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80"})
        async with observing(consul, "web") as sink:
            await sink.wait_until(lambda: any("certificate verify failed" in each for each in sink.failures))
            assert sink.services == {}
