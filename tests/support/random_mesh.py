"""Random meshes: valid config entries, upstreams for every chain that compiles, instances, and requests."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.lowering import DATACENTER, Json, chain_of
from tests.support.random_entries import DATACENTERS, DURATIONS, HEADERS, SERVICES, RandomEntries
from tests.support.route_reader import Request
from xds.mesh.core.chain.chain import ChainError
from xds.mesh.core.entries.defaults import ServiceDefaults
from xds.mesh.core.entries.entry import ConfigEntry, read_entry
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.lower.upstreams import AGGREGATE, FAILOVERS, Upstream, UpstreamsDocument, read_upstreams
from xds.model.errors import ValidationError
from xds.model.node import Locality
from xds.services.core.instance import Check, Health, Instance

_FIRST_PORT = 20_000
# Not lowered: there are no peers and no mesh gateways.
_UNREACHABLE = frozenset(("peer", "meshgateway"))


@dataclass(frozen=True)
class RandomMesh:
    """One seed makes one mesh. ``is_reachable``: nothing leads to peers or mesh gateways."""

    seed: int
    entries: ConfigEntries
    document: UpstreamsDocument
    catalog: dict[str, list[Instance]]
    requests: tuple[Request, ...]

    @classmethod
    def of(cls, seed: int, *, is_reachable: bool = True, requests: int = 4) -> RandomMesh:
        random = Random(seed)
        made = RandomEntries(random).entries()
        if is_reachable:
            made = [_without(one, _UNREACHABLE) for one in made]
        entries = ConfigEntries.of(entry for one in made if (entry := _read(one)) is not None)
        catalog = {service: [_instance(random, n) for n in range(random.randint(0, 4))] for service in SERVICES}
        asked = tuple(_request(random) for _ in range(requests))
        return cls(seed, entries, _document(random, entries), catalog, asked)


def _without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(one, names) for key, one in value.items() if key.replace("_", "").lower() not in names}
    return [_without(one, names) for one in value] if isinstance(value, list) else value


def _read(value: Json) -> ConfigEntry | None:
    try:
        return read_entry(value).entries[0]
    except ValidationError:
        return None


def _document(random: Random, entries: ConfigEntries) -> UpstreamsDocument:
    """An upstream for each service whose chain compiles, some of them in another datacenter or with overrides."""
    upstreams = [_upstream(random, service, at) for at, service in enumerate(SERVICES)]
    failover = random.choice(FAILOVERS)
    if any(isinstance(each, ServiceDefaults) and each.external_sni for each in entries):
        failover = AGGREGATE  # one cluster cannot have an external service and another one (mixed_tls)
    return read_upstreams(
        {
            "upstreams": [one for one in upstreams if _compiles(one, entries)],
            "failover": failover,
            "validate_clusters": random.random() < 0.3,
            "locality_aware": random.random() < 0.3,
        }
    )


def _upstream(random: Random, service: str, at: int) -> Json:
    found: Json = {"service": service, "bind_port": _FIRST_PORT + at}
    if random.random() < 0.2:
        found["datacenter"] = random.choice(DATACENTERS)
    if random.random() < 0.1:
        found["connect_timeout"] = random.choice(DURATIONS)
    if random.random() < 0.1:
        found["protocol"] = random.choice(("http", "http2", "grpc", "tcp"))
    return found


def _compiles(upstream: Json, entries: ConfigEntries) -> bool:
    (read,) = read_upstreams({"upstreams": [upstream]}).upstreams
    return compiles(read, entries)


def compiles(upstream: Upstream, entries: ConfigEntries) -> bool:
    try:
        chain_of(upstream, entries)
    except ChainError:
        return False
    return True


def _instance(random: Random, number: int) -> Instance:
    """Addresses repeat among services, and so do those of subsets: one place may be in several targets."""
    return Instance(
        id=str(number),
        address=f"127.0.{random.randint(1, 3)}.{random.randint(1, 20)}",
        port=8000 + number,
        meta={"version": random.choice(("1.2", "1.3"))},
        weight=random.choice((0, 1, 1, 10, 300)),
        warning_weight=random.choice((0, 1, 5)),
        locality=random.choice((Locality(), Locality("r", "z1"), Locality("r", "z2"))),
        datacenter=random.choice(("", DATACENTER, *DATACENTERS)),
        checks=(Check("c", random.choice((Health.PASSING, Health.PASSING, Health.WARNING, Health.CRITICAL))),),
    )


def _request(random: Random) -> Request:
    headers = [(name, random.choice(("v", "vv", "w"))) for name in HEADERS if random.random() < 0.4]
    query = [("q", random.choice(("v", "w")))] if random.random() < 0.4 else []
    path = random.choice(("/", "/a", "/ab", "/a/x", "/b/c", "/b/c/d", "/B/c", "/other"))
    return Request(path, random.choice(("GET", "PUT", "DELETE", "POST")), tuple(headers), tuple(query))
