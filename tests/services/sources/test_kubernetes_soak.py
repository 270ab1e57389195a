"""Kubernetes as a source, against a real API server and etcd that are killed, compacted, wiped and silenced."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes_api import SERVICES, SLICES, endpoint, endpoint_slice, service
from tests.support.kubernetes_cluster import STRANGER, KubernetesCluster
from tests.support.process import LOOPBACK
from tests.support.recording_sink import RecordingSink, running_source
from xds.services.source_settings import KubernetesSettings
from xds.services.sources.kubernetes import KubernetesSource
from xds.services.sources.kubernetes_client import ClientLimits
from xds.services.sources.kubernetes_credentials import ClusterCredentials, InCluster, Kubeconfig

GO_TIMEOUT_S = 3_000  # the first run builds the API server, on whatever machine

pytestmark = [pytest.mark.soak, pytest.mark.timeout(GO_TIMEOUT_S), pytest.mark.xdist_group("kubernetes")]

Places = dict[str, set[tuple[str, str]]]
WRITERS = 16


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubernetesCluster]:
    """A running API with the namespace ``shop``."""
    with KubernetesCluster(tmp_path) as running:
        running.namespace("shop")
        yield running


class Doorway:
    """A TCP proxy in front of the API server: it forwards, drops what passes, or cuts."""

    def __init__(self, port: int) -> None:
        self.is_silent = False
        self.port = 0
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            target_reader, target_writer = await asyncio.open_connection(LOOPBACK, self._target)
            self._writers |= {writer, target_writer}
            await asyncio.gather(self._pump(reader, target_writer), self._pump(target_reader, writer))
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            is_dead = False
            while data := await reader.read(65_536):
                is_dead = is_dead or self.is_silent  # a connection that lost bytes is dead for good
                if not is_dead:
                    writer.write(data)
                    await writer.drain()
        self._writers.discard(writer)
        writer.transport.abort()


@contextlib.asynccontextmanager
async def following(
    credentials: ClusterCredentials, limits: ClientLimits | None = None, **changes: Any
) -> AsyncIterator[RecordingSink]:
    sink = RecordingSink()
    given = {"retry_s": 0.2, "longest_retry_s": 2.0, "watch_s": 30.0, **changes}
    settings = KubernetesSettings(kind="kubernetes").model_copy(update=given)
    source = KubernetesSource("k8s", settings, credentials, limits)
    async with running_source(source, sink):
        yield sink


def seen(sink: RecordingSink) -> Places:
    """What the source gave, but for the API server's own Service."""
    return {
        name: {(one.address, one.health.value) for one in instances}
        for name, instances in sink.services.items()
        if name.endswith(".shop")
    }


def truth(cluster: KubernetesCluster) -> Places:
    """What the API has, read by another way."""
    found: Places = {f"{name}.{space}": set() for space, name in cluster.objects(SERVICES) if space == "shop"}
    for (namespace, _), one in cluster.objects(SLICES).items():
        name = f"{one['metadata']['labels'].get('kubernetes.io/service-name')}.{namespace}"
        if name in found:
            found[name] |= {(each["addresses"][0], _health(each["conditions"])) for each in one["endpoints"] or []}
    return found


def _health(conditions: dict[str, bool]) -> str:
    if conditions.get("terminating"):
        return "draining" if conditions.get("serving") else "critical"
    return "passing" if conditions.get("ready", True) else "critical"


async def settled(sink: RecordingSink, cluster: KubernetesCluster, timeout_s: float = 60.0) -> None:
    wanted = await asyncio.to_thread(truth, cluster)
    try:
        await sink.wait_until(lambda: seen(sink) == wanted, timeout_s)
    except TimeoutError:
        found = seen(sink)
        different = {name: (found.get(name), wanted.get(name)) for name in found.keys() | wanted.keys()}
        raise AssertionError({name: both for name, both in different.items() if both[0] != both[1]}) from None


async def write_all(writes: list[Callable[[], None]]) -> None:
    """Make many writes, several at once."""
    slots = asyncio.Semaphore(WRITERS)

    async def write(one: Callable[[], None]) -> None:
        async with slots:
            await asyncio.to_thread(one)

    await asyncio.gather(*map(write, writes))


def random_slice(name: str, part: str, chance: random.Random) -> dict[str, Any]:
    """A slice of a Service. Those of several parts have no address in common."""
    states: list[dict[str, Any]] = [
        {"ready": True, "serving": True, "terminating": False},
        {"ready": False, "serving": False, "terminating": False},
        {"ready": False, "serving": True, "terminating": True},
    ]
    first = 1 if part == "a" else 2
    numbers = chance.sample(range(1, 65_000), chance.randrange(20))
    endpoints = [
        endpoint(f"10.{first}.{n // 256}.{n % 256}", pod=f"p{first}-{n}", zone="z1", **chance.choice(states))
        for n in numbers
    ]
    return endpoint_slice(f"{name}-{part}", name, *endpoints)


async def test_services_and_slices_come_change_and_go_by_the_thousand(cluster: KubernetesCluster) -> None:
    chance = random.Random(1)
    async with following(Kubeconfig(cluster.kubeconfig())) as sink:
        names = [f"s{i}" for i in range(1_000)]
        await write_all([partial(cluster.create, service(n, clusterIP="None")) for n in names])
        slices = {n: [random_slice(n, part, chance) for part in ("a", "b")] for n in names}
        await write_all([partial(cluster.create, *slices[n]) for n in names])
        await settled(sink, cluster)
        changed = [random_slice(n, "a", chance) for n in names]
        await write_all([partial(cluster.put, one) for one in changed])
        await settled(sink, cluster)
        gone = chance.sample(names, 500)
        await write_all([partial(cluster.delete, SERVICES, n) for n in gone])
        await write_all([partial(cluster.delete, SLICES, f"{n}-b") for n in names])
        await settled(sink, cluster)
        assert sink.calls.count(("replace", "")) == 1
        assert not sink.failures
    # A source that starts now reads the same from lists.
    async with following(Kubeconfig(cluster.kubeconfig()), page_size=50) as fresh:
        await settled(fresh, cluster)


async def test_every_fault_of_the_api_leaves_equal_sets(cluster: KubernetesCluster) -> None:
    chance = random.Random(2)
    doorway = Doorway(cluster.port)
    await doorway.start()
    config = cluster.kubeconfig()
    config.write_text(config.read_text().replace(f":{cluster.port}", f":{doorway.port}"))
    limits = ClientLimits(silence_s=4.0, answer_s=5.0)
    async with following(Kubeconfig(config), limits=limits, watch_s=6.0, page_size=7) as sink:
        for step in range(40):
            await write_at_random(cluster, chance)
            match step % 8:
                case 1:
                    doorway.cut()
                case 2:
                    await asyncio.to_thread(cluster.compact)
                    doorway.cut()
                case 3:
                    await asyncio.to_thread(cluster.kill_api)
                    await asyncio.to_thread(cluster.start_api)
                case 4:  # versions before the restart are gone, from etcd and from the watch cache
                    await asyncio.to_thread(cluster.kill_api)
                    await asyncio.to_thread(cluster.start_api)
                    await write_at_random(cluster, chance)
                    await asyncio.to_thread(cluster.compact)
                case 5:
                    doorway.is_silent = True
                    await write_at_random(cluster, chance)
                    await asyncio.sleep(1.0)
                    doorway.is_silent = False
                case 6:
                    await asyncio.to_thread(cluster.kill_etcd)
                    await asyncio.to_thread(cluster.start_etcd)
                    await asyncio.sleep(3.0)
            await settled(sink, cluster)


async def write_at_random(cluster: KubernetesCluster, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 8)):
        name = f"s{chance.randrange(30)}"
        there = await asyncio.to_thread(cluster.objects, chance.choice((SERVICES, SLICES)))
        mine = [one for (namespace, one) in there if namespace == "shop"]
        match chance.randrange(6):
            case 0 if mine:
                gone = chance.choice(mine)
                plural = SLICES if "-" in gone else SERVICES
                await asyncio.to_thread(cluster.delete, plural, gone)
            case 1 | 2:
                await asyncio.to_thread(cluster.put, service(name, clusterIP="None", ipFamilies=None))
            case _:
                await asyncio.to_thread(cluster.put, random_slice(name, chance.choice("ab"), chance))


async def test_an_api_that_lost_everything_is_reported_at_once(cluster: KubernetesCluster) -> None:
    """Its versions begin anew: the real server accepts the old one, and is silent."""
    names = [f"s{i}" for i in range(20)]
    cluster.create(*(service(n, clusterIP="None") for n in names))
    cluster.create(*(endpoint_slice(f"{n}-a", n, endpoint("10.0.0.1")) for n in names))
    async with following(Kubeconfig(cluster.kubeconfig())) as sink:
        await settled(sink, cluster)
        calls = len(sink.calls)
        await asyncio.to_thread(cluster.lose_everything)
        await sink.wait_until(lambda: not seen(sink), 60)
        told = [call for call in sink.calls[calls:] if call[0] in ("put", "remove", "replace")]
        assert ("replace", "") in told
        assert not [call for call in told if call[1].endswith(".shop")]
        await asyncio.to_thread(cluster.namespace, "shop")
        await asyncio.to_thread(cluster.create, service("s1", clusterIP="None"))
        await asyncio.to_thread(cluster.create, endpoint_slice("s1-a", "s1", endpoint("10.0.0.9")))
        await settled(sink, cluster)


def has_failed(sink: RecordingSink, message: str) -> bool:
    return any(message in one for one in sink.failures)


async def test_each_way_to_come_in(cluster: KubernetesCluster) -> None:
    """With the rights of the documentation, and no others."""
    cluster.create(service("web", clusterIP="None"), endpoint_slice("web-a", "web", endpoint("10.0.0.1")))
    certificate = cluster.client_certificate
    environment = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": str(cluster.port)}
    account = cluster.account()
    ways: list[ClusterCredentials] = [
        Kubeconfig(cluster.kubeconfig()),
        Kubeconfig(cluster.kubeconfig("file", tokenFile=str(account / "token"))),
        Kubeconfig(
            cluster.kubeconfig(
                "certificate", **{"client-certificate": str(certificate.path), "client-key": str(certificate.key_path)}
            )
        ),
        InCluster(account, environment),
    ]
    for way in ways:
        async with following(way) as sink:
            await settled(sink, cluster)
            assert not sink.failures
    for token, message in ((STRANGER, "403 Forbidden"), ("nobody", "401 Unauthorized")):
        async with following(Kubeconfig(cluster.kubeconfig(token=token))) as sink:
            await sink.wait_until(partial(has_failed, sink, message))
            assert not sink.services


async def test_what_the_api_server_makes_of_services(cluster: KubernetesCluster) -> None:
    """Defaults that the server fills in: families, protocols, cluster addresses."""
    cluster.create(
        service("plain", ports=(("http", 80), ("metrics", 9100))),
        service("headless", clusterIP="None"),
        service("dual", ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv6", "IPv4"]),
        service("named", ports=(), type="ExternalName", externalName="db.example.org", ipFamilies=None),
        endpoint_slice("plain-a", "plain", endpoint("10.0.0.1"), ports=(("metrics", 9101), ("http", 8080))),
        endpoint_slice("headless-a", "headless", endpoint("10.0.0.2", hostname="h-0", zone="z1", hints=["z2"])),
        endpoint_slice("dual-a", "dual", endpoint("10.0.0.3", pod="d")),
        endpoint_slice("dual-b", "dual", endpoint("fd00::3", pod="d"), family="IPv6"),
        endpoint_slice("fqdn", "headless", endpoint("db.example.org"), family="FQDN"),
    )
    async with following(Kubeconfig(cluster.kubeconfig()), region="r") as sink:
        await sink.wait_until(lambda: bool(sink.findings))
        (plain,), (headless,), (dual,) = (sink.services[f"{name}.shop"] for name in ("plain", "headless", "dual"))
        assert (plain.port, dict(plain.ports)) == (8080, {"http": 8080, "metrics": 9101})
        assert (headless.locality.region, headless.locality.zone) == ("r", "z2")
        assert dual.address == "fd00::3"
        assert "named.shop" not in sink.services
        assert {each.code for each in sink.findings} == {"external_name", "invalid_address_type"}
