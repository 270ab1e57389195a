"""The workloads that push and wait for the last ACK: (a), node, types, five, (b), (f), (i)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bench.load.fleet import FleetSpec, Subscription, Variant
from bench.peers.peer import Kind, Tls
from bench.suite.goals import BROADCASTER, LINEAR, OURS, SNAPSHOT
from bench.suite.measure import Change, Changed, alternate, push_alone
from bench.suite.stage import CLUSTERS, Stage, connect_all, named, reconnect
from tests.support.pki import CertificateAuthority
from xds.model.resource_type import ENDPOINT, LISTENER, ROUTE, SECRET

VARIANTS: tuple[Variant, ...] = ("sotw", "delta")
CHANGES: tuple[Changed, ...] = ("all", "one")
NODE_BYTES = 61_000
NODE_CLUSTERS = 10
TLS_CLUSTERS = 10
TYPES_CLUSTERS = 10
# Each names another hundred, and all of them the one that changes.
NAME_SETS = 4


def clients(streams: int, variant: Variant) -> FleetSpec:
    """Streams on connections of their own that follow all clusters."""
    return FleetSpec(target="", streams=streams, variant=variant, subscriptions=CLUSTERS)


async def fan_out(stage: Stage) -> None:
    """Only clusters, which all clients follow by wildcard. First all of them change, then one."""
    for size, streams, sotw, delta, with_linear in stage.scale.sizes:
        kinds: list[Kind] = [OURS, SNAPSHOT, BROADCASTER]
        if with_linear:
            kinds.insert(2, LINEAR)
        async with stage.sides(kinds, Change(size)) as sides:
            alone = {
                (side.kind, changed): await push_alone(side, Change(size, changed=changed), streams, stage.rounds)
                for side in sides
                for changed in CHANGES
                if changed in sotw or changed in delta
            }
            for variant, asked in zip(VARIANTS, (sotw, delta), strict=True):
                await reconnect(sides, *([clients(streams, variant)] if asked else []))
                for changed in asked:
                    figures = await alternate(sides, Change(size, changed=changed), stage.rounds)
                    for side in sides:
                        figures[side.kind].update(alone[side.kind, changed])
                    key = f"a/{variant}/{size}/{changed}"
                    stage.keep(key, figures, variant=variant, clusters=size, changed=changed, streams=streams)


async def large_node(stage: Stage) -> None:
    """Envoy's node of 61 KB in every request, which is Envoy's default. 10 clusters, all changed."""
    streams, change = stage.scale.node_streams, Change(NODE_CLUSTERS)
    conditions = {"clusters": NODE_CLUSTERS, "changed": "all", "streams": streams, "node_bytes": NODE_BYTES}
    async with stage.sides((OURS, SNAPSHOT), change) as sides:
        for variant in VARIANTS:
            await reconnect(sides, replace(clients(streams, variant), node_bytes=NODE_BYTES, node_every_request=True))
            figures = await alternate(sides, change, stage.rounds)
            stage.keep(f"node/{variant}", figures, variant=variant, **conditions)


async def types_in_order(stage: Stage) -> None:
    """10 clusters by wildcard and their assignments by name on each stream. All change in one push.

    Our server sends the assignments with their clusters, as they wait for each other.
    """
    streams, change = stage.scale.types_streams, Change(TYPES_CLUSTERS, TYPES_CLUSTERS)
    conditions = {"clusters": TYPES_CLUSTERS, "assignments": TYPES_CLUSTERS, "changed": "all", "streams": streams}
    both = (*CLUSTERS, *named(range(TYPES_CLUSTERS)))
    async with stage.sides((OURS, SNAPSHOT), change) as sides:
        for variant in VARIANTS:
            await reconnect(sides, replace(clients(streams, variant), subscriptions=both))
            figures = await alternate(sides, change, stage.rounds)
            stage.keep(f"types/{variant}", figures, variant=variant, **conditions)


async def five_types(stage: Stage) -> None:
    """CDS, EDS, LDS, RDS and SDS on each stream: 10 clusters, assignments, listeners, routes and secrets, all changed.

    Clusters and listeners by wildcard, the others by name. Our server sends routes behind the ACK of their listeners,
    and both behind the ACKs of their clusters. go-control-plane is given the resources before the push begins.
    """
    streams, count = stage.scale.types_streams, TYPES_CLUSTERS
    change = Change(count, count, listeners=count)
    conditions = {"clusters": count, "assignments": count, "listeners": count, "changed": "all", "streams": streams}
    by_name = [each for url in (ENDPOINT, ROUTE, SECRET) for each in named(range(count), url)]
    subscriptions = (*CLUSTERS, by_name[0], Subscription(LISTENER, None), *by_name[1:])
    async with stage.sides((OURS, SNAPSHOT), change) as sides:
        for variant in VARIANTS:
            await reconnect(sides, replace(clients(streams, variant), subscriptions=subscriptions))
            figures = await alternate(sides, change, stage.rounds)
            stage.keep(f"five/{variant}", figures, variant=variant, **conditions)


async def assignments(stage: Stage) -> None:
    """One of 10,000 assignments changes. Clients follow 100 by name (four different sets of 100), or all.

    In SotW our server and the linear cache send the changed assignment; the snapshot cache sends all that a client
    names.
    """
    count = stage.scale.assignments
    conditions = {"assignments": count, "changed": "one"}
    async with stage.sides((OURS, SNAPSHOT, LINEAR), Change(count, count), by_name=True) as sides:
        for variant in VARIANTS:
            for names, streams in stage.scale.named:
                await reconnect(sides, *_followers(variant, names, streams, count))
                figures = await alternate(sides, Change(count, count, "one"), stage.rounds)
                key = f"b/{variant}/{names}"
                stage.keep(key, figures, variant=variant, names=names, streams=streams, **conditions)


def _followers(variant: Variant, names: int, streams: int, count: int) -> Iterator[FleetSpec]:
    """Fleets that name the assignment that changes, and as many others as make up ``names``."""
    sets = NAME_SETS if names < count else 1
    for number in range(sets):
        rest = range(1 + number * (names - 1), 1 + (number + 1) * (names - 1))
        yield FleetSpec(target="", streams=streams // sets, variant=variant, subscriptions=named([0, *rest]))


async def growth(stage: Stage) -> None:
    """The same push to a growing number of streams: all clusters changed in SotW, one in Delta."""
    asked: tuple[tuple[Variant, Changed], ...] = (("sotw", "all"), ("delta", "one"))
    for size, counts in stage.scale.growth:
        async with stage.sides((OURS, SNAPSHOT), Change(size)) as sides:
            for variant, changed in asked:
                if variant not in stage.scale.variants:
                    continue
                await reconnect(sides)
                for before, streams in pairwise((0, *counts)):
                    await connect_all(sides, clients(streams - before, variant))
                    figures = await alternate(sides, Change(size, changed=changed), stage.rounds)
                    key = f"f/{variant}/{size}/{changed}/{streams}"
                    stage.keep(key, figures, variant=variant, clusters=size, changed=changed, streams=streams)


async def encrypted(stage: Stage) -> None:
    """Our server with and without TLS, 10 clusters, all changed. Both rows of a cell are our server."""
    streams, change = stage.scale.tls_streams, Change(TLS_CLUSTERS)
    conditions = {"clusters": TLS_CLUSTERS, "changed": "all", "streams": streams}
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority(Path(folder))
        issued = authority.issue("server")
        tls = Tls(issued.path, issued.key_path)
        async with stage.sides((OURS,), change) as plain, stage.sides((OURS,), change, tls=tls) as encrypted:
            encrypted[0].kind = "ours-tls"
            for variant in VARIANTS:
                await reconnect(plain, clients(streams, variant))
                await reconnect(encrypted, replace(clients(streams, variant), ca=authority.path))
                figures = await alternate([*plain, *encrypted], change, stage.rounds)
                stage.keep(f"i/{variant}", figures, variant=variant, **conditions)
