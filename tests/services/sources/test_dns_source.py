"""DNS as a source, against a DNS server on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.dns_server import DnsServer
from tests.support.recording_sink import RecordingSink, running_source
from xds.services.sources import dns_client
from xds.services.sources.dns_cache import FAMILIES, QueryIntervals, ServiceName
from xds.services.sources.dns_client import DnsClient
from xds.services.sources.dns_source import DnsSource, service_name

PACE = QueryIntervals(shortest_s=0.1, longest_s=300, retry_s=0.1, longest_retry_s=0.4)
WEB = "web.example.org"
API = "_api._tcp.example.org"


def address(name: str = WEB, port: int = 80, family: str = "ipv4") -> ServiceName:
    return service_name(name, port, FAMILIES[family])


def srv(name: str = API, family: str = "ipv4") -> ServiceName:
    return service_name(name, None, FAMILIES[family])


@pytest.fixture
async def server() -> AsyncIterator[DnsServer]:
    made = await DnsServer().start()
    yield made
    await made.stop()


@asynccontextmanager
async def running(
    server: DnsServer, pace: QueryIntervals = PACE, timeout_s: float = 0.3, **services: ServiceName
) -> AsyncIterator[RecordingSink]:
    """A sink that is fed from the server."""
    sink = RecordingSink()
    client = DnsClient([("127.0.0.1", server.port)], timeout_s)
    async with running_source(DnsSource("dns", services, client, pace), sink):
        yield sink


def places(sink: RecordingSink, service: str, *expected: str) -> Callable[[], bool]:
    """Whether a service has exactly these places."""
    return lambda: service in sink.services and sink.places(service) == set(expected)


async def stays(sink: RecordingSink, server: DnsServer, name: str, type: str, service: str, *expected: str) -> None:
    """The service keeps its places while the name is asked three times more."""
    before = server.asked[(name, type)]
    async with asyncio.timeout(10):
        while server.asked[(name, type)] < before + 3:
            await asyncio.sleep(0.02)
            assert sink.places(service) == set(expected)


async def test_addresses_follow_the_zone(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", "10.0.0.2", ttl_s=0)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80", "10.0.0.2:80"))
        server.put(WEB, "A", "10.0.0.2", "10.0.0.3", ttl_s=0)
        await sink.wait_until(places(sink, "web", "10.0.0.2:80", "10.0.0.3:80"))


async def test_a_name_is_asked_again_when_its_ttl_ends_and_not_before(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=2)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        began = asyncio.get_running_loop().time()
        server.put(WEB, "A", "10.0.0.9", ttl_s=2)
        await asyncio.sleep(1.2)
        assert server.asked[(WEB, "A")] == 1
        await sink.wait_until(places(sink, "web", "10.0.0.9:80"))
        assert 1.5 < asyncio.get_running_loop().time() - began < 3


async def test_the_shortest_ttl_of_a_chain_of_aliases_counts(server: DnsServer) -> None:
    server.put(WEB, "CNAME", "edge.example.org.", ttl_s=0)
    server.put("edge.example.org", "A", "10.0.0.1", ttl_s=300)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        server.put(WEB, "CNAME", "other.example.org.", ttl_s=300)
        server.put("other.example.org", "A", "10.0.0.2", ttl_s=300)
        await sink.wait_until(places(sink, "web", "10.0.0.2:80"))


async def test_ttls_are_bounded(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=2_000_000)
    async with running(server, QueryIntervals(0.1, 0.5, 0.1, 0.4), web=address()) as sink:
        await sink.wait_until(lambda: server.asked[(WEB, "A")] >= 3)


async def test_both_families_of_a_dual_stack_name(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    server.put(WEB, "AAAA", "2001:db8::1", ttl_s=0)
    async with running(server, four=address(), six=address(family="ipv6"), both=address(family="both")) as sink:
        await sink.wait_until(places(sink, "both", "10.0.0.1:80", "2001:db8::1:80"))
        await sink.wait_until(places(sink, "four", "10.0.0.1:80"))
        await sink.wait_until(places(sink, "six", "2001:db8::1:80"))
        assert {one.id for one in sink.services["both"]} == {"10.0.0.1:80", "[2001:db8::1]:80"}


async def test_a_truncated_answer_is_asked_for_over_tcp(server: DnsServer) -> None:
    every = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(900)]
    server.put(WEB, "A", *every, ttl_s=0)
    async with running(server, timeout_s=2, web=address()) as sink:
        await sink.wait_until(places(sink, "web", *(f"{each}:80" for each in every)))
    assert server.over_tcp[WEB] >= 1


async def test_a_server_without_edns_is_asked_without(server: DnsServer) -> None:
    server.knows_edns = False
    server.put(WEB, "A", "10.0.0.1")
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))


async def test_forged_answers_are_not_taken(server: DnsServer) -> None:
    server.spoofs = True
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        await stays(sink, server, WEB, "A", "web", "10.0.0.1:80")
    assert ("put", "web") in sink.calls and sink.calls.count(("put", "web")) == 1


# What is not an answer


@pytest.mark.parametrize("how", ["SERVFAIL", "REFUSED", None])
async def test_a_failure_keeps_the_last_good_set(server: DnsServer, how: str | None) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        server.fail(WEB, how)
        await stays(sink, server, WEB, "A", "web", "10.0.0.1:80")
        await sink.wait_until(lambda: bool(sink.failures))
        assert (how or "timed out") in sink.failures[-1] and "web.example.org" in sink.failures[-1]
        server.put(WEB, "A", "10.0.0.2", ttl_s=0)
        server.heal(WEB)
        await sink.wait_until(places(sink, "web", "10.0.0.2:80"))


async def test_a_server_that_goes_and_comes_back(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        await server.stop()
        await sink.wait_until(lambda: bool(sink.failures))
        assert sink.places("web") == {"10.0.0.1:80"}
        server.put(WEB, "A", "10.0.0.2", ttl_s=0)
        await server.start()
        await sink.wait_until(places(sink, "web", "10.0.0.2:80"))


async def test_one_name_that_fails_does_not_make_the_source_fail(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    server.fail("bad.example.org", "SERVFAIL")
    async with running(server, web=address(), bad=address("bad.example.org")) as sink:
        await sink.wait_until(lambda: any(one.pointer == "/bad" for one in sink.findings))
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        before = len(sink.failures)
        await stays(sink, server, WEB, "A", "web", "10.0.0.1:80")
        await asyncio.sleep(0.6)
        assert "bad" not in sink.services
        assert len(sink.failures) == before


# A name without records


async def test_a_name_without_records_is_empty_when_the_zone_says_so_twice(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    async with running(server, QueryIntervals(0.5, 300, 0.1, 0.4), web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        server.remove(WEB, "A")
        asked = server.asked[(WEB, "A")]
        await sink.wait_until(places(sink, "web"))
        assert server.asked[(WEB, "A")] == asked + 2


async def test_a_single_empty_answer_of_a_zone_changes_nothing(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    async with running(server, QueryIntervals(0.5, 300, 0.1, 0.4), web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        for _ in range(3):  # each time it is back before it is asked again
            kept = server.records.pop((WEB, "A"))
            asked = server.asked[(WEB, "A")]
            while server.asked[(WEB, "A")] == asked:
                await asyncio.sleep(0.01)
            server.records[(WEB, "A")] = kept
            while server.asked[(WEB, "A")] == asked + 1:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert sink.calls.count(("put", "web")) == 1


async def test_a_name_that_has_other_records_only_is_empty(server: DnsServer) -> None:
    server.put(WEB, "TXT", '"here"')
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web"))


async def test_an_empty_answer_repeated_by_a_cache_counts_once(server: DnsServer) -> None:
    server.is_cache, server.negative_ttl_s = True, 2
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        began = asyncio.get_running_loop().time()
        server.remove(WEB, "A")
        await sink.wait_until(places(sink, "web"))
        assert asyncio.get_running_loop().time() - began > 1.8


@pytest.mark.parametrize(
    ("soa", "told"), [("", "without the SOA record"), (".", "by the root zone"), ("a.test", "SOA")]
)
async def test_only_the_zone_can_say_that_a_name_has_no_records(server: DnsServer, soa: str, told: str) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        server.remove(WEB, "A")
        server.soa = soa
        await stays(sink, server, WEB, "A", "web", "10.0.0.1:80")
        await sink.wait_until(lambda: any(told in one.detail for one in sink.findings))


# SRV


async def test_srv_records_bring_ports_weights_and_targets(server: DnsServer) -> None:
    server.put(API, "SRV", "1 10 8080 a.example.org.", "1 30 8081 b.example.org.", "2 10 9000 backup.example.org.")
    server.put("a.example.org", "A", "10.0.0.1")
    server.put("b.example.org", "A", "10.0.0.2", "10.0.0.3")
    server.put("backup.example.org", "A", "10.0.0.4")
    async with running(server, api=srv()) as sink:
        await sink.wait_until(places(sink, "api", "10.0.0.1:8080", "10.0.0.2:8081", "10.0.0.3:8081"))
        found = {one.address: (one.weight, one.node) for one in sink.services["api"]}
    assert found == {
        "10.0.0.1": (10, "a.example.org"),
        "10.0.0.2": (30, "b.example.org"),
        "10.0.0.3": (30, "b.example.org"),
    }


async def test_a_weight_of_zero_is_small_beside_others_and_equal_among_themselves(server: DnsServer) -> None:
    server.put("a.example.org", "A", "10.0.0.1")
    server.put("b.example.org", "A", "10.0.0.2")
    server.put(API, "SRV", "1 0 80 a.example.org.", "1 3 80 b.example.org.", ttl_s=0)
    async with running(server, api=srv()) as sink:
        await sink.wait_until(lambda: "api" in sink.services)
        assert [one.weight for one in sink.services["api"]] == [1, 300]
        server.put(API, "SRV", "1 0 80 a.example.org.", "1 0 80 b.example.org.", ttl_s=0)
        await sink.wait_until(lambda: [one.weight for one in sink.services["api"]] == [1, 1])


async def test_a_target_that_moves_and_one_that_is_new(server: DnsServer) -> None:
    server.put("a.example.org", "A", "10.0.0.1", ttl_s=0)
    server.put(API, "SRV", "1 1 80 a.example.org.", ttl_s=0)
    async with running(server, api=srv()) as sink:
        await sink.wait_until(places(sink, "api", "10.0.0.1:80"))
        server.put("a.example.org", "A", "10.0.0.7", ttl_s=0)
        await sink.wait_until(places(sink, "api", "10.0.0.7:80"))
        server.put("b.example.org", "A", "10.0.0.2", ttl_s=0)
        server.put(API, "SRV", "1 1 80 b.example.org.", ttl_s=0)
        await sink.wait_until(places(sink, "api", "10.0.0.2:80"))
        before = server.asked[("a.example.org", "A")]
        await stays(sink, server, "b.example.org", "A", "api", "10.0.0.2:80")
        assert server.asked[("a.example.org", "A")] <= before + 1, "the target of before is asked no more"


async def test_a_target_without_an_answer_keeps_its_addresses(server: DnsServer) -> None:
    server.put("a.example.org", "A", "10.0.0.1", ttl_s=0)
    server.put("b.example.org", "A", "10.0.0.2", ttl_s=0)
    server.put(API, "SRV", "1 1 80 a.example.org.", "1 1 80 b.example.org.", ttl_s=0)
    async with running(server, api=srv()) as sink:
        await sink.wait_until(places(sink, "api", "10.0.0.1:80", "10.0.0.2:80"))
        server.fail("b.example.org", "SERVFAIL")
        await stays(sink, server, "b.example.org", "A", "api", "10.0.0.1:80", "10.0.0.2:80")
        server.put("a.example.org", "A", "10.0.0.3", ttl_s=0)
        await sink.wait_until(places(sink, "api", "10.0.0.3:80", "10.0.0.2:80"))
        await stays(sink, server, "b.example.org", "A", "api", "10.0.0.3:80", "10.0.0.2:80")


async def test_at_the_start_a_service_waits_for_the_answers_to_all_targets(server: DnsServer) -> None:
    """What was served before a restart must not shrink to the targets that answer first."""
    server.put("a.example.org", "A", "10.0.0.1", ttl_s=0)
    server.put("b.example.org", "A", "10.0.0.2", ttl_s=0)
    server.fail("b.example.org", "SERVFAIL")
    server.put(API, "SRV", "1 1 80 a.example.org.", "1 1 80 b.example.org.", ttl_s=0)
    async with running(server, QueryIntervals(0.05, 300, 0.3, 0.6), api=srv()) as sink:
        while server.asked[("b.example.org", "A")] < 2:
            await asyncio.sleep(0.01)
        assert "api" not in sink.services
        server.heal("b.example.org")
        await sink.wait_until(lambda: "api" in sink.services)
        assert sink.places("api") == {"10.0.0.1:80", "10.0.0.2:80"}


async def test_a_target_that_never_answers_does_not_keep_the_others_out(server: DnsServer) -> None:
    server.put("a.example.org", "A", "10.0.0.1", ttl_s=0)
    server.fail("b.example.org", None)
    server.put(API, "SRV", "1 1 80 a.example.org.", "1 1 80 b.example.org.", ttl_s=0)
    async with running(server, api=srv()) as sink:
        await sink.wait_until(places(sink, "api", "10.0.0.1:80"))
        await sink.wait_until(lambda: any("A b.example.org: timed out" in str(one) for one in sink.findings))


async def test_a_new_target_that_fails_does_not_hold_up_a_service_that_was_complete(server: DnsServer) -> None:
    server.put("a.example.org", "A", "10.0.0.1", ttl_s=0)
    server.put(API, "SRV", "1 1 80 a.example.org.", ttl_s=0)
    async with running(
        server, QueryIntervals(0.05, 300, 100, 100), api=srv()
    ) as sink:  # what fails is not asked again here
        await sink.wait_until(places(sink, "api", "10.0.0.1:80"))
        server.fail("b.example.org", "SERVFAIL")
        server.put("a.example.org", "A", "10.0.0.9", ttl_s=0)
        server.put(API, "SRV", "1 1 80 a.example.org.", "1 1 80 b.example.org.", ttl_s=0)
        await sink.wait_until(places(sink, "api", "10.0.0.9:80"))


async def test_the_root_as_target_means_that_there_is_no_instance(server: DnsServer) -> None:
    server.put("a.example.org", "A", "10.0.0.1", ttl_s=0)
    server.put(API, "SRV", "1 1 80 a.example.org.", ttl_s=0)
    async with running(server, api=srv()) as sink:
        await sink.wait_until(places(sink, "api", "10.0.0.1:80"))
        server.put(API, "SRV", "0 0 0 .", ttl_s=0)
        await sink.wait_until(places(sink, "api"))
    assert ("", "A") not in server.asked and (".", "A") not in server.asked


async def test_addresses_that_no_host_has_are_left_out_and_reported(server: DnsServer) -> None:
    server.put(WEB, "A", "0.0.0.0", "224.0.0.1", "10.0.0.1", ttl_s=0)
    async with running(server, web=address()) as sink:
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
        await sink.wait_until(lambda: any("224.0.0.1" in one.detail for one in sink.findings))


# Servers and bounds


async def test_the_next_server_is_asked_when_one_fails(server: DnsServer) -> None:
    server.put(WEB, "A", "10.0.0.1", ttl_s=0)
    dead = await DnsServer().start()
    dead.is_silent = True
    sink = RecordingSink()
    client = DnsClient([("127.0.0.1", dead.port), ("127.0.0.1", server.port)], 0.2)
    async with running_source(DnsSource("dns", {"web": address()}, client, PACE), sink):
        await sink.wait_until(places(sink, "web", "10.0.0.1:80"))
    await dead.stop()
    assert not sink.failures


async def test_the_servers_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_client, "RESOLV_CONF", tmp_path / "resolv.conf")
    (tmp_path / "resolv.conf").write_text("search corp.example\nnameserver 10.9.8.7\nnameserver fe80::1\n")
    assert dns_client.system_servers() == (("10.9.8.7", 53), ("fe80::1", 53))


async def test_questions_are_asked_a_few_at_a_time(server: DnsServer) -> None:
    at_once = peak = 0

    class Counted(DnsClient):
        async def query(self, question: Any) -> Any:
            nonlocal at_once, peak
            at_once += 1
            peak = max(peak, at_once)
            try:
                return await super().query(question)
            finally:
                at_once -= 1

    services = {f"s{n}": address(f"s{n}.example.org") for n in range(200)}
    for n in range(200):
        server.put(f"s{n}.example.org", "A", f"10.0.0.{n + 1}", ttl_s=60)
    sink = RecordingSink()
    async with running_source(DnsSource("dns", services, Counted([("127.0.0.1", server.port)]), PACE, 7), sink):
        await sink.wait_until(lambda: len(sink.services) == 200)
    assert peak == 7
    assert sum(server.asked.values()) == 200


@pytest.mark.parametrize("name", ["a" * 64 + ".example.org", "a..b", ""])
def test_an_invalid_dns_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a DNS name"):
        service_name(name, 80, FAMILIES["ipv4"])
