"""What decides what a node gets: the groups that are tried, and what it is served of its group."""

from __future__ import annotations

from xds.control.explain import Situation
from xds.control.translation import V2, V2_TYPES
from xds.model.node import Node
from xds.protocol.cache import SnapshotCache


def situation_of(cache: SnapshotCache, node: Node) -> Situation:
    """The situation of a node that names itself so, connected or not."""
    candidates = tuple(cache.membership.candidates(node))
    views = {api: cache.resolve(node, api) for api in ("", V2)}
    snapshots = {api: view.snapshot if view is not None else None for api, view in views.items()}
    plain = views[""]
    source = plain.source if plain is not None else None
    return Situation(node, candidates, lambda type_url: snapshots[V2 if type_url in V2_TYPES else ""], source)
