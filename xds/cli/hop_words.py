"""What one hop of a discovery chain says, in words: matches, changes and resolvers, from the JSON of the chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

NEGATIVE = "-"  # of a duration: none at all
USUAL_TIMEOUT = "5s"
_HOLDS = {"Exact": "is", "Prefix": "begins with", "Suffix": "ends with", "Regex": "matches"}
_HOLDS_NOT = {
    "Exact": "is other than",
    "Prefix": "does not begin with",
    "Suffix": "does not end with",
    "Regex": "does not match",
}
_PATHS = {"PathExact": "is", "PathPrefix": "begins with", "PathRegex": "matches"}
_GATEWAY = "mesh gateway"


def match_words(route: Json) -> str:
    """Which requests a route matches; ``route`` is its definition."""
    http = route.get("Match", {}).get("HTTP", {})
    return " and ".join(_conditions(http)) or "any request"


def _conditions(http: Json) -> Iterator[str]:
    case = " in any case" if http.get("CaseInsensitive") else ""
    for field, verb in _PATHS.items():
        if http.get(field) and (field, http[field]) != ("PathPrefix", "/"):
            yield f"path {verb} {http[field]}{case if field != 'PathRegex' else ''}"
    for header in http.get("Header", ()):
        yield f"header {header.get('Name', '')} {_holds(header)}"
    if http.get("Methods"):
        yield f"method {' or '.join(http['Methods'])}"
    for parameter in http.get("QueryParam", ()):
        yield f"query parameter {parameter.get('Name', '')} {_holds(parameter)}"


def _holds(match: Json) -> str:
    verbs = _HOLDS_NOT if match.get("Invert") else _HOLDS
    for field, verb in verbs.items():
        if match.get(field):
            return f"{verb} {match[field]}"
    return "is not there" if match.get("Invert") else "is there"


def route_words(route: Json) -> list[str]:
    """What a route does besides sending the request on."""
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
    """Changes of headers by a route's destination or a leg."""
    return [
        f"{of} headers: {'; '.join(_changes(definition[field]))}"
        for field, of in (("RequestHeaders", "request"), ("ResponseHeaders", "response"))
        if definition.get(field)
    ]


def _changes(modifiers: Json) -> Iterator[str]:
    for field, verb in (("Add", "add"), ("Set", "set")):
        for name, value in modifiers.get(field, {}).items():
            yield f"{verb} {name}: {value}"
    for name in modifiers.get("Remove", ()):
        yield f"remove {name}"


def target_words(target: Json) -> list[str]:
    """What is special about a target: its subset, whether it is external, its gateways."""
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
    """The timeouts and the load balancer of a resolver, where they are other than the usual ones."""
    resolver = node.get("Resolver", {})
    timeout = resolver.get("ConnectTimeout", USUAL_TIMEOUT)
    words = [f"connect timeout {timeout}"] if timeout != USUAL_TIMEOUT else []
    if resolver.get("RequestTimeout"):
        words.append(f"request timeout {resolver['RequestTimeout'] / 1e9:g}s")
    policy = node.get("LoadBalancer", {}).get("Policy")
    return [*words, *([f"load balancer {policy}"] if policy else [])]


def redirect_words(chain: Json, target: Json, service: str) -> list[str]:
    """Whether a resolver leads elsewhere than to the ``service`` that was asked for, in the datacenter of the chain.

    An empty ``service`` is one that the chain does not name: a leg to the service of a splitter that was flattened.
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
    """A title and what is said of it."""
    return f"{text}: {', '.join(words)}" if words else text
