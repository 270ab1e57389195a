"""A compiled discovery chain as a tree: routes, legs with their weights, resolvers, failover.

Everything is read from the JSON of the chain, in Consul's names. A node that several branches lead to has its children
below the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xds.cli.hop_words import (
    header_words,
    match_words,
    percent_words,
    redirect_words,
    resolver_words,
    route_words,
    target_words,
    with_words,
)
from xds.cli.tree import Branch, tree_text

Json = Mapping[str, Any]

AS_ABOVE = "(as above)"


def chain_text(chain: Json) -> str:
    """The whole chain."""
    head = Branch(title(chain))
    ChainTree(chain).grow(head, chain["StartNode"], str(chain["ServiceName"]))
    return tree_text(head)


def title(chain: Json) -> str:
    """The service, its protocol, and where the chain is seen from."""
    words = [chain.get("Protocol", "tcp"), f"datacenter {chain['Datacenter']}"]
    if chain.get("Default"):
        words.append("no config entry changes the way")
    if chain.get("CustomizationHash"):
        words.append(f"overridden ({chain['CustomizationHash']})")
    return with_words(str(chain["ServiceName"]), words)


class ChainTree:
    """Grows the branches of one chain; remembers which nodes have been shown."""

    def __init__(self, chain: Json) -> None:
        self._chain = chain
        self._nodes: Json = chain["Nodes"]
        self._targets: Json = chain["Targets"]
        self._shown: set[str] = set()

    def grow(self, parent: Branch, key: str, service: str) -> None:
        """Add the node ``key`` below ``parent``; ``service`` is the one that was asked for."""
        node = self._nodes[key]
        if node["Type"] == "resolver":
            self._resolver(parent, node, service)
            return
        branch = parent.add(f"{node['Type']} {node['Name']}{self._mark(key)}")
        if key in self._shown:
            return
        self._shown.add(key)
        if node["Type"] == "router":
            for at, route in enumerate(node["Routes"]):
                self._route(branch, at, route)
        for split in node.get("Splits", ()):
            self._leg(branch, split)

    def _mark(self, key: str) -> str:
        return f" {AS_ABOVE}" if key in self._shown else ""

    def _route(self, parent: Branch, at: int, route: Json) -> None:
        definition = route.get("Definition", {})
        line = with_words(f"route {at + 1}, {match_words(definition)}", route_words(definition))
        service = definition.get("Destination", {}).get("Service") or self._chain["ServiceName"]
        self.grow(parent.add(line), route["NextNode"], service)

    def _leg(self, parent: Branch, split: Json) -> None:
        definition = split.get("Definition", {})
        weight, words = percent_words(split.get("Weight", 0)), header_words(definition)
        self._resolver(parent, self._nodes[split["NextNode"]], definition.get("Service", ""), f"{weight} ", words)

    def _resolver(self, parent: Branch, node: Json, service: str, before: str = "", words: Sequence[str] = ()) -> None:
        resolver, key = node["Resolver"], f"resolver:{node['Name']}"
        target = self._targets[resolver["Target"]]
        edge = [*words, *redirect_words(self._chain, target, service)]
        own = [*target_words(target), *resolver_words(node)]
        failover = resolver.get("Failover", {}).get("Targets", ())
        mark = self._mark(key) if own or failover else ""
        told = edge if mark else [*edge, *own]
        branch = parent.add(with_words(f"{before}resolver {node['Name']}{mark}", told))
        if key in self._shown:
            return
        self._shown.add(key)
        for at, name in enumerate(failover):
            branch.add(with_words(f"failover {at + 1}, {name}", target_words(self._targets[name])))
