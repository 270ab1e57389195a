"""The way of one request through a discovery chain as a tree: the routes that were tried, and where it may end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from xds.cli.chain_tree import ChainTree
from xds.cli.hop_words import match_words, route_words, with_words
from xds.cli.tree import Branch, tree_text

Json = Mapping[str, Any]


def walk_text(walk: Json) -> str:
    """The answer of the walk endpoint for people."""
    chain = walk["Chain"]
    head = Branch(_request_words(walk["request"], chain["ServiceName"]))
    tree, service, parent = ChainTree(chain), chain["ServiceName"], head
    routes = chain["Nodes"][chain["StartNode"]].get("Routes", ())
    for tried in walk["routes"]:
        definition = routes[tried["route"] - 1].get("Definition", {})
        line = f"route {tried['route']}, {match_words(definition)}"
        if not tried["matches"]:
            head.add(f"{line}: no, {tried['mismatch']}")
            continue
        parent = head.add(f"{line}: yes{_effects(walk, definition)}")
        service = definition.get("Destination", {}).get("Service") or service
    tree.grow(parent, walk["next_node"], service)
    return tree_text(head)


def _effects(walk: Json, definition: Json) -> str:
    words = route_words(definition)
    if walk["path"] != walk["request"]["path"]:
        words.append(f"sent on as {walk['path']}")
    return "".join(f", {word}" for word in words)


def _request_words(request: Json, service: str) -> str:
    query = f"?{urlencode([tuple(pair) for pair in request['query']])}" if request["query"] else ""
    headers = [f"{name}: {value}" for name, value in request["headers"]]
    return with_words(f"{request['method']} {request['path']}{query} to {service}", headers)
