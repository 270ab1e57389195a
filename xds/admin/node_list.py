"""The list of nodes: filter, order, page, and counts over all that match, of this server and of all servers as one.

Nodes are read in batches, so that streams and other requests are served between them; only those of the page are
rendered. A proxy may be known to several servers: a node without streams at one of them is listed and counted only if
no other server knows it better (`NodeStanding`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain, islice
from time import time
from typing import Any, TypeVar

from fastapi import Request

from xds.admin.answers import LIMIT, Page, page_token
from xds.admin.dependencies import Dependencies
from xds.admin.gathering import Gathered, gather, gather_standings, is_of_server, own_name, standings
from xds.admin.merged_pages import is_cut, nodes_of
from xds.admin.models.nodes import LOAD_SERVICE, NodeCounts, NodeStatus
from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.fleet.node_selection import ListedNode, NodeFilter, NodeOrder, NodeTally, worst_of
from xds.fleet.node_state import NodeState
from xds.fleet.state import NodeStanding, Sync
from xds.model.natural_order import natural_key

Json = dict[str, Any]
T = TypeVar("T")

READ_AT_ONCE = 200  # nodes that are read, but not rendered
RENDERED_AT_ONCE = 10
VERSIONS_SHOWN = 100
GROUPS_SHOWN = 1_000
# Counts for another server: numbers of nodes with streams here, and the nodes without, which are not counted yet.
SURE, WEAK = "sure", "weak"


@dataclass(frozen=True, slots=True)
class NodeList:
    """What a caller asks for."""

    chosen: NodeFilter
    order: NodeOrder
    has_counts: bool
    paging: Page

    def place_after(self) -> tuple[int, str]:
        """The rank and the natural key behind which the page begins. Raises ``RequestError``."""
        rank, after = "0", self.paging.after
        if self.order is not NodeOrder.ID and after:
            rank, _, after = after.partition(" ")
        if not rank.isdecimal():
            raise RequestError(HTTPStatus.BAD_REQUEST, "page_token is not one that this server returned")
        return int(rank), natural_key(after) if after else ""

    def token_of(self, id: str, state: Sync) -> str:
        """The token of the page behind a node."""
        return page_token(id if self.order is NodeOrder.ID else f"{self.order.rank(state)} {id}")


async def answer(
    deps: Dependencies, request: Request, asked: NodeList, status: Callable[[NodeState], NodeStatus]
) -> Json:
    """The page and the counts of all servers. Raises ``RequestError``."""
    page, tally, weak = await _own_page(deps, asked, status)
    others = await gather(deps, request)
    if asked.has_counts:
        page["counts"] = await _counts(deps, request, tally, weak, others)
    if others.is_alone:
        return page
    pages = [page, *others.documents.values()]
    merged = await asyncio.to_thread(_merge, asked.order, pages)
    shown = merged[: asked.paging.limit]
    found: Json = {"items": shown, **others.marks}
    if is_cut(pages, merged, asked.paging.limit):
        found["next_page_token"] = asked.token_of(str(shown[-1]["id"]), _state_of(shown[-1]))
    if not asked.chosen.is_empty or asked.order is not NodeOrder.ID:
        found["items"] = await _at_their_servers(deps, request, shown)
    return {**found, **({"counts": page["counts"]} if asked.has_counts else {})}


async def _own_page(
    deps: Dependencies, asked: NodeList, status: Callable[[NodeState], NodeStatus]
) -> tuple[Json, NodeTally, list[ListedNode]]:
    """This server's page, the counts of its nodes with streams, and its nodes without."""
    rank_after, key_after = asked.place_after()
    is_whole = asked.has_counts or asked.order is not NodeOrder.ID
    tally, weak, now = NodeTally(), list[ListedNode](), time()
    by_rank: dict[int, list[ListedNode]] = {}
    found_n = 0
    for ids in _batches(deps.fleet.ids_after("" if is_whole else asked.paging.after), READ_AT_ONCE):
        listed = deps.fleet.listed(ids, asked.chosen, now)
        for node in listed:
            by_rank.setdefault(asked.order.rank(node.state), []).append(node)
        found_n += len(listed)
        if asked.has_counts:
            tally.add(node for node in listed if node.has_streams)
            weak += (node for node in listed if not node.has_streams)
        if not is_whole and found_n > asked.paging.limit:
            break
        await asyncio.sleep(0)
    behind = [node for node in by_rank.get(rank_after, ()) if not key_after or natural_key(node.id) > key_after]
    later = chain.from_iterable(by_rank[rank] for rank in sorted(by_rank) if rank > rank_after)
    page = await _rendered(deps, asked, [*behind, *later], status)
    return page, tally, weak


async def _rendered(
    deps: Dependencies, asked: NodeList, found: Sequence[ListedNode], status: Callable[[NodeState], NodeStatus]
) -> Json:
    items: list[Json] = []
    listed = found[: asked.paging.limit]
    for some in _batches(listed, RENDERED_AT_ONCE):
        states = filter(None, (deps.fleet.node(node.id) for node in some))
        items += (document_of(status(state)) for state in states)
        await asyncio.sleep(0)
    is_more = len(found) > len(listed)
    return {"items": items, **({"next_page_token": asked.token_of(listed[-1].id, listed[-1].state)} if is_more else {})}


# Several servers


def _merge(order: NodeOrder, pages: Sequence[Json]) -> list[Json]:
    return sorted(nodes_of(pages), key=lambda item: order.rank(_state_of(item)))


def _state_of(item: Json) -> Sync:
    return worst_of({Sync(type["state"]) for type in item["types"].values()})


async def _at_their_servers(deps: Dependencies, request: Request, items: Sequence[Json]) -> list[Json]:
    """Items without those that have no stream at their server while another one knows them better.

    The page of that one has left them out, or has them at another place.
    """
    weak = [item["id"] for item in items if all(stream["service"] == LOAD_SERVICE for stream in item["streams"])]
    best = await _best_servers(deps, request, weak)
    return [item for item in items if best.get(item["id"], item["server"]) == item["server"]]


async def _best_servers(deps: Dependencies, request: Request, ids: Iterable[str]) -> dict[str, str]:
    """The servers that know nodes best, by node."""
    best: dict[str, tuple[NodeStanding, str]] = {}
    for some in _batches(dict.fromkeys(ids), LIMIT):
        others = await gather_standings(deps, request, some)
        for server, nodes in {own_name(deps, request): standings(deps, some), **others.documents}.items():
            for id, standing in nodes.items():
                here = (standing, server)
                best[id] = max(best.get(id, here), here)
    return {id: server for id, (_, server) in best.items()}


async def _counts(
    deps: Dependencies, request: Request, tally: NodeTally, weak: Sequence[ListedNode], others: Gathered
) -> Json:
    """The counts. A server that asks is told the nodes without streams one by one, for another may know them better."""
    if is_of_server(request.scope):
        return {SURE: [[*alike, number] for alike, number in tally.numbers.items()], WEAK: weak}
    by_server = {own_name(deps, request): list(weak)}
    for server, document in others.documents.items():
        found = document["counts"]
        tally.numbers.update({(Sync(state), *alike): number for state, *alike, number in found[SURE]})
        by_server[server] = [ListedNode(id, Sync(state), *rest) for id, state, *rest in found[WEAK]]
    ids = [node.id for nodes in by_server.values() for node in nodes] if others.documents else []
    best = await _best_servers(deps, request, ids)
    for server, nodes in by_server.items():
        tally.add(node for node in nodes if best.get(node.id, server) == server)
    states = {state.value: number for state, number in tally.by_state().items()}
    counted = NodeCounts(
        total=tally.total,
        connected=tally.connected,
        by_state=states,
        by_version=tally.by_version(VERSIONS_SHOWN),
        by_group=tally.by_group(GROUPS_SHOWN),
        nacked_by_group=tally.nacked_by_group(GROUPS_SHOWN),
    )
    return dict(document_of(counted))


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
