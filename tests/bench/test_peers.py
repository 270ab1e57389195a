"""The servers of the benchmarks all do the same work: the same resources, to SotW and Delta clients, push by push."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bench.peers.child import Child, PeerError
from bench.peers.go_program import build
from bench.peers.peer import Kind, Peer, Tls, within
from bench.peers.resources import Change, Changed, Content, name_of
from tests.support.grpc_stream import CHANNEL_OPTIONS, DELTA, SOTW, GrpcStream, delta, sotw
from tests.support.pki import CertificateAuthority
from xds.codec.resources import decode_resource
from xds.codec.schema import message_class
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.proto import wire_pb2

CLUSTERS = 4
GO_TIMEOUT_S = 2_000  # the first run builds the Go program, on whatever machine
NEEDS_GO = (
    pytest.mark.soak,  # a minute of building, for what the product does not need
    pytest.mark.timeout(GO_TIMEOUT_S),
    pytest.mark.xdist_group("go-control-plane"),
)
ALL_KINDS = (
    "ours",
    "broadcaster",
    pytest.param("go-snapshot", marks=NEEDS_GO),
    pytest.param("go-linear", marks=NEEDS_GO),
)
every_kind = pytest.mark.parametrize("kind", ALL_KINDS)
# One start of our server takes longer than all of the broadcaster's tests: most tests of it are long ones.
every_kind_ours_in_soak = pytest.mark.parametrize(
    "kind", [pytest.param("ours", marks=pytest.mark.soak), *ALL_KINDS[1:]]
)
both_variants = pytest.mark.parametrize("variant", ["sotw", "delta"])

Held = dict[str, dict[str, Any]]  # type URL -> name -> message


class Follower:
    """A client of all clusters and all assignments that ACKs whatever comes."""

    def __init__(self, stream: GrpcStream, variant: str) -> None:
        self.held: Held = {CLUSTER: {}, ENDPOINT: {}}
        self.versions: dict[str, str] = {}
        self.received = 0
        self._stream = stream
        self._sotw = variant == "sotw"
        self._names = [name_of(index) for index in range(CLUSTERS)]

    def subscribe(self, *types: str) -> None:
        first = sotw if self._sotw else delta
        self._stream.send(*(first(url, self._names if url == ENDPOINT else ()) for url in types))

    async def reach(self, content: Content) -> None:
        """Take responses until what is held is the content."""
        wanted = held_of(content)
        while self.held != wanted:
            self._take(await asyncio.to_thread(self._stream.receive))

    def _take(self, response: Any) -> None:
        self.received += 1
        url = response.type_url
        packed = response.resources if self._sotw else [one.resource for one in response.resources]
        read = [parsed(any_message.type_url, any_message.value) for any_message in packed]
        if self._sotw and url == CLUSTER:
            self.held[url].clear()
        self.held[url] |= {getattr(one, "name", "") or one.cluster_name: one for one in read}
        self.versions[url] = response.version_info if self._sotw else response.system_version_info
        self._stream.send(self._ack(response))

    def _ack(self, response: Any) -> bytes:
        url, nonce = response.type_url, response.nonce
        if not self._sotw:
            return wire_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=nonce).SerializeToString()
        names = self._names if url == ENDPOINT else ()
        ack = wire_pb2.DiscoveryRequest(
            type_url=url, response_nonce=nonce, version_info=response.version_info, resource_names=names
        )
        return ack.SerializeToString()


@contextmanager
def following(peer: Peer, variant: str) -> Iterator[Follower]:
    with GrpcStream(port_of(peer), SOTW if variant == "sotw" else DELTA) as stream:
        yield Follower(stream, variant)


def port_of(peer: Peer) -> int:
    return int(peer.target.rpartition(":")[2])


def parsed(type_url: str, body: bytes) -> Any:
    found = message_class(type_url)
    assert found is not None
    return found.FromString(body)


def held_of(content: Content) -> Held:
    held: Held = {CLUSTER: {}, ENDPOINT: {}}
    for url, index in content.every():
        held[url][name_of(index)] = parsed(url, content.body(url, index))
    return held


def numbered(*changes: Changed) -> Iterator[tuple[int, Changed]]:
    """Pushes with their editions, from 1."""
    return enumerate(changes, 1)


async def follow(peer: Peer, variant: str, assignments: int) -> None:
    """Push three times, and look at what arrives of each."""
    content = Content()
    last = ENDPOINT if assignments else CLUSTER
    with following(peer, variant) as follower:
        follower.subscribe(CLUSTER, ENDPOINT) if assignments else follower.subscribe(CLUSTER)
        for edition, changed in numbered("all", "all", "one"):
            content.apply(Change(CLUSTERS, assignments, changed, edition))
            pushed = await peer.push(CLUSTERS, assignments, changed, edition)
            before = follower.received
            await follower.reach(content)
            assert pushed.asked_at <= pushed.accepted_at
            # Delta's system_version_info is for people; SotW's version_info is what an ACK repeats.
            assert variant == "delta" or follower.versions[last] == pushed.version
        assert follower.received == before + 1, "one response tells of one change"


@every_kind
@both_variants
async def test_a_peer_serves_every_push_to_a_client_of_clusters_and_assignments(kind: Kind, variant: str) -> None:
    async with Peer.start(kind) as peer:
        await follow(peer, variant, CLUSTERS)
    assert peer.exit_code == 0


@every_kind_ours_in_soak
@both_variants
async def test_a_peer_serves_clusters_alone(kind: Kind, variant: str) -> None:
    async with Peer.start(kind) as peer:
        await follow(peer, variant, 0)


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("go-control-plane")
async def test_a_snapshot_cache_out_of_ads_mode_answers_clients_of_some_assignments() -> None:
    """In ADS mode a SotW request by name that leaves out one of the snapshot's names is never answered."""
    async with Peer.start("go-snapshot", flags=["--ads=false"]) as peer:
        await peer.push(CLUSTERS, CLUSTERS, "all", 1)
        with GrpcStream(port_of(peer)) as stream:
            response = await asyncio.to_thread(stream.send(sotw(ENDPOINT, [name_of(1)])).receive)
            assert [parsed(ENDPOINT, one.value).cluster_name for one in response.resources] == [name_of(1)]


@pytest.mark.soak
async def test_our_server_is_pushed_to_in_protobuf_too() -> None:
    async with Peer.start("ours", binary=True) as peer:
        await follow(peer, "sotw", CLUSTERS)


@every_kind_ours_in_soak
async def test_a_late_client_gets_the_pushed_content(kind: Kind) -> None:
    content = Content()
    async with Peer.start(kind) as peer:
        for edition, changed in numbered("all", "one"):
            content.apply(Change(CLUSTERS, CLUSTERS, changed, edition))
            await peer.push(CLUSTERS, CLUSTERS, changed, edition)
        for variant in ("sotw", "delta"):
            with following(peer, variant) as follower:
                follower.subscribe(CLUSTER, ENDPOINT)
                await follower.reach(content)


@every_kind_ours_in_soak
async def test_a_peer_uses_tls(kind: Kind, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    shown = authority.issue("server")
    async with Peer.start(kind, tls=Tls(shown.path, shown.key_path)) as peer:
        await peer.push(CLUSTERS, 0, "all", 1)
        credentials = grpc.ssl_channel_credentials(authority.pem.encode())
        with grpc.secure_channel(peer.target, credentials, CHANNEL_OPTIONS) as channel:
            stream = GrpcStream(port_of(peer), SOTW, channel).send(sotw(CLUSTER))
            response = await asyncio.to_thread(stream.receive)
            assert len(response.resources) == CLUSTERS
            stream.close()


@pytest.mark.soak
async def test_cpu_is_that_of_the_whole_process_and_a_peak_is_reset() -> None:
    async with Peer.start("ours") as peer:
        ticks_before_s = ticks_s(peer.pid)
        measured_s = peer.cpu_s()
        assert ticks_before_s - 0.05 <= measured_s <= ticks_s(peer.pid) + 0.05
        await peer.push(2_000, 2_000, "all", 1)
        await peer.push(1, 0, "all", 2)
        assert peer.cpu_s() > measured_s
        risen_kb = peer.peak_rss_kb()
        peer.reset_peak()
        assert peer.peak_rss_kb() <= risen_kb
        assert peer.rss_kb() > 10_000


async def test_the_making_of_messages_is_no_cpu_of_the_transport() -> None:
    async with Peer.start("broadcaster") as peer:
        await peer.push(2_000, 2_000, "all", 1)
        assert peer.excluded_cpu_s > 0
        least_s = ticks_s(peer.pid) - peer.excluded_cpu_s
        assert least_s - 0.05 <= peer.cpu_s() <= ticks_s(peer.pid) - peer.excluded_cpu_s + 0.05


async def test_a_peer_that_ends_says_why() -> None:
    with pytest.raises(PeerError, match="unrecognized arguments: --no-such-flag"):
        async with Peer.start("broadcaster", flags=["--no-such-flag"]):
            pass


def test_without_a_go_toolchain_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerError, match=r"needs Go 1\.\d+"):
        build()


@pytest.mark.parametrize("assignments", [0, CLUSTERS])
def test_resources_are_the_same_in_json_and_in_bytes(assignments: int) -> None:
    content = Content()
    content.apply(Change(CLUSTERS, assignments, "all", 6))
    content.apply(Change(CLUSTERS, assignments, "one", 7))
    for url, index in content.every():
        decoded = decode_resource({"@type": url, **content.value(url, index)})
        assert decoded.name == name_of(index)
        assert decoded.body == content.body(url, index)


@pytest.mark.parametrize(("clusters", "assignments"), [(0, 0), (1, 2), (1, -1)])
def test_counts_that_make_no_sense_are_refused(clusters: int, assignments: int) -> None:
    with pytest.raises(ValueError, match=f"{clusters} clusters"):
        Change(clusters, assignments, "all", 1)


def ticks_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_push_that_is_cancelled_as_it_is_answered_is_cancelled() -> None:
    """Else the pushes of the storm, one a second until they are cancelled, went on for ever."""
    child = Child([sys.executable, "-c", "input()"])
    try:
        answer = asyncio.get_running_loop().create_future()
        asked = asyncio.create_task(within(10.0, answer, child, "it did not answer"))
        await asyncio.sleep(0)
        answer.set_result(None)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    finally:
        child.kill()
        child.close()


async def test_a_peer_that_does_not_answer_in_time_is_reported_and_ended() -> None:
    child = Child([sys.executable, "-c", "input()"])
    try:
        with pytest.raises(PeerError, match=r"it did not answer after 0\.1 s"):
            await within(0.1, asyncio.to_thread(child.read), child, "it did not answer")
        assert child.exit_code == -signal.SIGKILL
    finally:
        child.close()
