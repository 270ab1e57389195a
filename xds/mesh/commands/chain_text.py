"""Discovery chains as text: as a tree, as a graph in DOT, and the way of one request.

The input is the JSON of the chain, with Consul's names. In the tree, a node that several branches lead to has its
children below the first of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from xds.cli.output import printable

_INNER, _LAST = ("├─ ", "│  "), ("└─ ", "   ")

Json = Mapping[str, Any]

NEGATIVE = "-"  # the sign of a negative duration, which means no timeout
DEFAULT_TIMEOUT = "5s"
_HOLDS = {"Exact": "is", "Prefix": "begins with", "Suffix": "ends with", "Regex": "matches"}
_HOLDS_NOT = {
    "Exact": "is other than",
    "Prefix": "does not begin with",
    "Suffix": "does not end with",
    "Regex": "does not match",
}
_PATHS = {"PathExact": "is", "PathPrefix": "begins with", "PathRegex": "matches"}
_GATEWAY = "mesh gateway"

AS_ABOVE = "(as above)"

_SHAPES = {"router": "diamond", "splitter": "trapezium", "resolver": "box"}


@dataclass(slots=True)
class Branch:
    """A line and the branches below it."""

    text: str
    children: list[Branch] = field(default_factory=list)

    def add(self, text: str) -> Branch:
        """A new last child."""
        child = Branch(text)
        self.children.append(child)
        return child


def tree_text(branch: Branch) -> str:
    """The branch and all branches below it, a line each. Unprintable characters are escaped."""
    return "".join(f"{line}\n" for line in _branch_lines(branch))


def _branch_lines(branch: Branch) -> Iterator[str]:
    yield printable(branch.text)
    for child in branch.children:
        first, others = _LAST if child is branch.children[-1] else _INNER
        for at, line in enumerate(_branch_lines(child)):
            yield (others if at else first) + line


def match_words(route: Json) -> str:
    """Which requests a route matches; ``route`` is its definition."""
    http = route.get("Match", {}).get("HTTP", {})
    return " and ".join(_conditions(http)) or "any request"


def _conditions(http: Json) -> Iterator[str]:
    case = " in any case" if http.get("CaseInsensitive") else ""
    for key, verb in _PATHS.items():
        if http.get(key) and (key, http[key]) != ("PathPrefix", "/"):
            yield f"path {verb} {http[key]}{case if key != 'PathRegex' else ''}"
    for header in http.get("Header", ()):
        yield f"header {header.get('Name', '')} {_holds(header)}"
    if http.get("Methods"):
        yield f"method {' or '.join(http['Methods'])}"
    for parameter in http.get("QueryParam", ()):
        yield f"query parameter {parameter.get('Name', '')} {_holds(parameter)}"


def _holds(match: Json) -> str:
    verbs = _HOLDS_NOT if match.get("Invert") else _HOLDS
    for key, verb in verbs.items():
        if match.get(key):
            return f"{verb} {match[key]}"
    return "is not there" if match.get("Invert") else "is there"


def route_words(route: Json) -> list[str]:
    """What a route does to a request, apart from its destination."""
    destination = route.get("Destination", {})
    words = []
    if destination.get("PrefixRewrite"):
        what = "path" if route.get("Match", {}).get("HTTP", {}).get("PathExact") else "prefix"
        words.append(f"rewrites the {what} to {destination['PrefixRewrite']}")
    words += _timeout("timeout", destination.get("RequestTimeout"))
    words += _timeout("idle timeout", destination.get("IdleTimeout"))
    words += _retries(destination)
    return words + header_words(destination)


def _timeout(name: str, duration: str | None) -> list[str]:
    if not duration:
        return []
    return [f"no {name}" if duration.startswith(NEGATIVE) else f"{name} {duration}"]


def _retries(destination: Json) -> list[str]:
    causes = list(destination.get("RetryOn", ()))
    if destination.get("RetryOnConnectFailure") and "connect-failure" not in causes:
        causes.append("connect-failure")
    causes += map(str, destination.get("RetryOnStatusCodes", ()))
    number = destination.get("NumRetries", 0)
    if not causes and not number:
        return []
    count = "retries" if not number else "1 retry" if number == 1 else f"{number} retries"
    return [f"{count} on {', '.join(causes)}" if causes else count]


def header_words(definition: Json) -> list[str]:
    """The changes of headers by a route's destination or a leg."""
    return [
        f"{of} headers: {'; '.join(_changes(definition[field]))}"
        for field, of in (("RequestHeaders", "request"), ("ResponseHeaders", "response"))
        if definition.get(field)
    ]


def _changes(modifiers: Json) -> Iterator[str]:
    for key, verb in (("Add", "add"), ("Set", "set")):
        for name, value in modifiers.get(key, {}).items():
            yield f"{verb} {name}: {value}"
    for name in modifiers.get("Remove", ()):
        yield f"remove {name}"


def target_words(target: Json) -> list[str]:
    """The properties of a target: its subset, whether it is external, its mesh gateways."""
    words = []
    subset = target.get("Subset", {})
    if target.get("ServiceSubset"):
        filtered = f" ({subset['Filter']})" if subset.get("Filter") else ""
        words.append(f"subset {target['ServiceSubset']}{filtered}")
    if subset.get("OnlyPassing"):
        words.append("only passing instances")
    if target.get("External"):
        words.append(f"external, SNI {target.get('SNI', '')}")
    mode = target.get("MeshGateway", {}).get("Mode")
    return [*words, *([f"{_GATEWAY} {mode}"] if mode else [])]


def resolver_words(node: Json) -> list[str]:
    """The timeouts and the load balancer of a resolver, if they are not the default ones."""
    resolver = node.get("Resolver", {})
    timeout = resolver.get("ConnectTimeout", DEFAULT_TIMEOUT)
    words = [f"connect timeout {timeout}"] if timeout != DEFAULT_TIMEOUT else []
    if resolver.get("RequestTimeout"):
        words.append(f"request timeout {resolver['RequestTimeout'] / 1e9:g}s")
    policy = node.get("LoadBalancer", {}).get("Policy")
    return [*words, *([f"load balancer {policy}"] if policy else [])]


def redirect_words(chain: Json, target: Json, service: str) -> list[str]:
    """The redirect of a resolver away from the requested ``service``, or away from the datacenter of the chain.

    ``service`` is empty for a leg to the service of a flattened splitter, which the chain does not name.
    """
    if service and target.get("Service") != service:
        return [f"redirected from {service}"]
    datacenter = target.get("Datacenter")
    if datacenter and datacenter != chain.get("Datacenter"):
        return [f"redirected from {chain.get('Datacenter')}"]
    return [f"redirected to peer {target['Peer']}"] if target.get("Peer") else []


def percent_words(weight: float) -> str:
    """``33.3%``."""
    return f"{weight:.10g}%"


def with_words(text: str, words: list[str]) -> str:
    """A title, followed by its details if there are any."""
    return f"{text}: {', '.join(words)}" if words else text


def chain_text(chain: Json) -> str:
    """The whole chain."""
    head = Branch(title(chain))
    ChainTree(chain).add_node(head, chain["StartNode"], str(chain["ServiceName"]))
    return tree_text(head)


def title(chain: Json) -> str:
    """The service, its protocol, and the datacenter of the chain."""
    words = [chain.get("Protocol", "tcp"), f"datacenter {chain['Datacenter']}"]
    if chain.get("Default"):
        words.append("no config entry changes the way")
    if chain.get("CustomizationHash"):
        words.append(f"overridden ({chain['CustomizationHash']})")
    return with_words(str(chain["ServiceName"]), words)


class ChainTree:
    """Makes the branches of one chain. Nodes that were shown already are not repeated."""

    def __init__(self, chain: Json) -> None:
        self._chain = chain
        self._nodes: Json = chain["Nodes"]
        self._targets: Json = chain["Targets"]
        self._shown: set[str] = set()

    def add_node(self, parent: Branch, key: str, service: str) -> None:
        """Add the node ``key`` below ``parent``; ``service`` is the requested one."""
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
        self.add_node(parent.add(line), route["NextNode"], service)

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
        details = edge if mark else [*edge, *own]
        branch = parent.add(with_words(f"{before}resolver {node['Name']}{mark}", details))
        if key in self._shown:
            return
        self._shown.add(key)
        for at, name in enumerate(failover):
            branch.add(with_words(f"failover {at + 1}, {name}", target_words(self._targets[name])))


def chain_dot(chain: Json) -> str:
    """A digraph with a node for each node of the chain and each failover target."""
    body = "".join(f"  {line}\n" for line in _dot_lines(chain))
    return f"digraph {_quoted(chain['ServiceName'])} {{\n  label={_quoted(title(chain))};\n{body}}}\n"


def _dot_lines(chain: Json) -> Iterator[str]:
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
    """A string in DOT, whose escapes are those of JSON for the characters used here."""
    return json.dumps(text, ensure_ascii=False)


def walk_text(walk: Json) -> str:
    """The answer of the walk endpoint as text."""
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
    tree.add_node(parent, walk["next_node"], service)
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
