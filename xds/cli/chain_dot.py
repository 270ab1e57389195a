"""A compiled discovery chain as a graph in the DOT language of Graphviz, from the JSON of the chain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xds.cli.chain_tree import title
from xds.cli.hop_words import match_words, percent_words, resolver_words, target_words

Json = Mapping[str, Any]

_SHAPES = {"router": "diamond", "splitter": "trapezium", "resolver": "box"}


def chain_dot(chain: Json) -> str:
    """A digraph: a node for each node of the chain and each failover target, an edge for each way."""
    body = "".join(f"  {line}\n" for line in _lines(chain))
    return f"digraph {_quoted(chain['ServiceName'])} {{\n  label={_quoted(title(chain))};\n{body}}}\n"


def _lines(chain: Json) -> Iterator[str]:
    targets: dict[str, Json] = {}
    for key, node in chain["Nodes"].items():
        yield f"{_quoted(key)} [shape={_SHAPES[node['Type']]}, label={_label(_node_words(chain, node))}];"
        for label, other in _ways(node):
            yield f"{_quoted(key)} -> {_quoted(other)} [label={_quoted(label)}];"
        for at, name in enumerate(node.get("Resolver", {}).get("Failover", {}).get("Targets", ())):
            targets[name] = chain["Targets"][name]
            label = _quoted(f"failover {at + 1}")
            yield f"{_quoted(key)} -> {_quoted(f'target:{name}')} [style=dashed, label={label}];"
    for name, target in targets.items():
        yield f"{_quoted(f'target:{name}')} [shape=box, style=dashed, label={_label([name, *target_words(target)])}];"


def _node_words(chain: Json, node: Json) -> list[str]:
    words = [f"{node['Type']} {node['Name']}"]
    if node["Type"] == "resolver":
        words += [*target_words(chain["Targets"][node["Resolver"]["Target"]]), *resolver_words(node)]
    return words


def _ways(node: Json) -> Iterator[tuple[str, str]]:
    for at, route in enumerate(node.get("Routes", ())):
        yield f"{at + 1}: {match_words(route.get('Definition', {}))}", route["NextNode"]
    for split in node.get("Splits", ()):
        yield percent_words(split.get("Weight", 0)), split["NextNode"]


def _label(words: list[str]) -> str:
    return _quoted("\n".join(words))


def _quoted(text: str) -> str:
    """A string of DOT: its escapes are JSON's for what is used here, and other characters stand as they are."""
    return json.dumps(text, ensure_ascii=False)
