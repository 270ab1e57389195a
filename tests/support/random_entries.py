"""Random sets of config entries like those that people write: most of them valid, some broken on purpose."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

Json = dict[str, Any]

SERVICES = ("web", "api", "alt", "db", "cache", "w2")
SUBSETS = ("v1", "v2", "v3")
DATACENTERS = ("dc1", "dc2", "dc3")
PEERS = ("east", "west")
DURATIONS = ("5s", "12s", "250ms", "1m30s", "1.5h", 3_000_000_000, "0s")
HEADERS = ("x-a", "x-b", "x-c")


class RandomEntries:
    """``is_old``: only fields that Consul 1.10 knows. ``flaws``: the probability that a part of an entry is broken."""

    def __init__(self, random: Random, *, is_old: bool = False, flaws: float = 0.02) -> None:
        self._random = random
        self._is_old = is_old
        self._flaws = flaws
        # Most of a set has one protocol. Otherwise hardly any chain would compile.
        self._protocol = random.choice(("http", "http", "http", "grpc", "tcp"))

    def entries(self) -> list[Json]:
        """A set of up to some dozen entries; each kind and name once."""
        made: dict[tuple[str, str], Json] = {}
        for _ in range(self._random.randint(0, 20)):
            kind = self._random.choice(_KINDS)
            entry = _MAKERS[kind](self)
            made[kind, entry["Name"]] = entry
        if self._chance(0.9):
            made["proxy-defaults", "global"] = self.proxy_defaults()
        return [in_snake_case(entry) if self._chance(0.2) else entry for entry in made.values()]

    def chains(self, count: int) -> list[Json]:
        """The parameters of a request; sometimes with other datacenters and overrides."""
        return [self._chain(service) for service in self._random.sample(SERVICES, count)]

    def _chain(self, service: str) -> Json:
        chosen: Json = {"Service": service, "TrustDomain": "td.consul"}
        chosen["Datacenter"] = self._random.choice(DATACENTERS) if self._chance(0.2) else "dc1"
        chosen["Protocol"] = self._random.choice(("http", "http2", "grpc", "tcp")) if self._chance(0.15) else ""
        chosen["ConnectTimeout"] = self._random.choice((5, 7, 12)) * 10**9 if self._chance(0.15) else 0
        chosen["MeshGatewayMode"] = self._random.choice(("none", "local", "remote")) if self._chance(0.15) else ""
        return chosen

    # Chances

    def _chance(self, likely: float) -> bool:
        return self._random.random() < likely

    def _broken(self) -> bool:
        return self._chance(self._flaws)

    def _service(self) -> str:
        return self._random.choice(SERVICES)

    def _some(self, make: Callable[[], Any], most: int) -> list[Any]:
        return [make() for _ in range(self._random.randint(0, most))]

    def _weights(self, count: int) -> list[float]:
        """Percentages that sum up to 100, except for a broken set."""
        cuts = sorted(self._random.randint(0, 10_000) for _ in range(count - 1))
        points = [after - before for before, after in zip([0, *cuts], [*cuts, 10_000], strict=True)]
        if self._broken():
            points[0] += self._random.choice((-1, 1, 100))
        return [one / 100 for one in points]

    def _spoken(self) -> str:
        """The protocol of the set, in upper or lower case; sometimes another one."""
        if self._chance(0.04):
            return self._random.choice(("http", "http2", "grpc", "tcp"))
        return self._protocol.upper() if self._chance(0.1) else self._protocol

    # Kinds

    def router(self) -> Json:
        return {"Kind": "service-router", "Name": self._service(), "Routes": self._some(self._route, 3)}

    def _route(self) -> Json:
        route: Json = {}
        if self._chance(0.85):
            route["Match"] = {"HTTP": self._http_match()} if self._chance(0.95) else {}
        if self._chance(0.8):
            route["Destination"] = self._destination(route.get("Match", {}).get("HTTP", {}))
        return route

    def _http_match(self) -> Json:
        match: Json = {}
        kind = self._random.choice(("PathExact", "PathPrefix", "PathRegex", ""))
        if kind:
            match[kind] = "a" if self._broken() else self._random.choice(("/", "/a", "/b/c"))
        if self._broken():
            match["PathPrefix"] = "/other"
        if self._chance(0.3):
            match["Header"] = self._some(self._header, 2)
        if self._chance(0.2):
            match["QueryParam"] = self._some(self._parameter, 2)
        if self._chance(0.2):
            methods = ["get", "PUT", "DELETE", *(["GET", "BREW"] if self._broken() else [])]
            match["Methods"] = self._random.sample(methods, self._random.randint(1, len(methods)))
        return match

    def _header(self) -> Json:
        header: Json = {"Name": "" if self._broken() else self._random.choice(HEADERS)}
        kind = self._random.choice(("Present", "Exact", "Prefix", "Suffix", "Regex"))
        header[kind] = True if kind == "Present" else "v"
        if self._broken():
            header["Exact"] = "w"
        if self._chance(0.2):
            header["Invert"] = True
        return header

    def _parameter(self) -> Json:
        kind = self._random.choice(("Present", "Exact", "Regex"))
        parameter: Json = {"Name": "q", kind: True if kind == "Present" else "v"}
        if self._broken():
            parameter["Regex"] = ".*"
        return parameter

    def _destination(self, match: Json) -> Json:
        destination: Json = {}
        if self._chance(0.8):
            destination["Service"] = self._service()
        if self._chance(0.06):
            destination["ServiceSubset"] = self._random.choice(SUBSETS)
        if self._broken() or ("PathPrefix" in match and self._chance(0.3)):
            destination["PrefixRewrite"] = "/x"
        for field in ("RequestTimeout", "RetryOnConnectFailure", "NumRetries", "RetryOnStatusCodes"):
            if self._chance(0.15):
                destination[field] = self._random.choice(_DESTINATION_VALUES[field])
        if not self._is_old and self._chance(0.15):
            destination["RetryOn"] = ["5xx", "nonsense" if self._broken() else "reset"]
            destination["IdleTimeout"] = self._random.choice(DURATIONS)
        self._add_headers(destination)
        return destination

    def _add_headers(self, leg: Json) -> None:
        """Only for Consuls that have them."""
        for field in () if self._is_old else ("RequestHeaders", "ResponseHeaders"):
            if self._chance(0.12):
                leg[field] = self._headers()

    def _headers(self) -> Json:
        changes: Json = {}
        # Both maps or none: Consul crashes if a leg has one of them and a nested leg has the other.
        maps = self._chance(0.7) or self._broken()
        for field in ("Add", "Set") if maps else ():
            changes[field] = {self._random.choice(HEADERS): str(self._random.randint(0, 9))}
        if self._broken():
            changes.pop("Add", None)
        if self._chance(0.5):
            changes["Remove"] = self._random.sample(HEADERS, 2)
        return changes

    def splitter(self) -> Json:
        name, count = self._service(), self._random.randint(0 if self._broken() else 1, 4)
        splits: list[Json] = []
        seen = set()
        for _ in range(count):
            leg = self._leg(name)
            key = (leg.get("Service", name), leg.get("ServiceSubset", ""))
            if key not in seen or self._broken():
                splits.append(leg)
            seen.add(key)
        for leg, weight in zip(splits, self._weights(len(splits)) if splits else (), strict=True):
            leg["Weight"] = weight
        return {"Kind": "service-splitter", "Name": name, "Splits": splits}

    def _leg(self, name: str) -> Json:
        leg: Json = {}
        if self._chance(0.75):
            leg["Service"] = self._service()
        if self._chance(0.12):
            leg["ServiceSubset"] = self._random.choice(SUBSETS)
        self._add_headers(leg)
        return leg

    def resolver(self) -> Json:
        entry: Json = {"Kind": "service-resolver", "Name": self._service()}
        if self._chance(0.75):
            entry["Subsets"] = {name: self._subset() for name in SUBSETS if self._chance(0.95)}
        if self._broken():
            entry["Subsets"] = {self._random.choice(("V1", "a.b", "-a", "a" * 64, "a--a", "01")): {}}
        if self._broken() or (entry.get("Subsets") and self._chance(0.25)):
            entry["DefaultSubset"] = self._random.choice(list(entry.get("Subsets", {})) or ["v1"])
        if self._chance(0.2):
            entry["Redirect"] = self._redirect()
        if self._broken() or ("Redirect" not in entry and self._chance(0.4)):
            entry["Failover"] = self._failovers(list(entry.get("Subsets", {})))
        if self._chance(0.25):
            entry["ConnectTimeout"] = "-1s" if self._broken() else self._random.choice(DURATIONS)
        if not self._is_old and self._chance(0.15):
            entry["RequestTimeout"] = self._random.choice(DURATIONS)
        if self._chance(0.25):
            entry["LoadBalancer"] = self._balancer()
        return entry

    def _subset(self) -> Json:
        if self._broken():
            return {"Filter": "Service.Meta.version =="}
        return self._random.choice(({}, {"OnlyPassing": True}, {"Filter": 'Service.Meta.version == "1.2"'}))

    def _redirect(self) -> Json:
        redirect: Json = {}
        if self._chance(0.85):
            redirect["Service"] = self._service()
        if self._chance(0.1):
            redirect["ServiceSubset"] = self._random.choice(SUBSETS)
        if self._chance(0.25):
            redirect["Datacenter"] = self._random.choice(DATACENTERS)
        if not self._is_old and "Service" in redirect and self._chance(0.12):
            redirect["Peer"] = self._random.choice(PEERS)
        return redirect

    def _failovers(self, subsets: list[str]) -> Json:
        keys = [*subsets, "*", *(["nonsense"] if self._broken() else [])]
        chosen = self._random.sample(keys, self._random.randint(1, len(keys)))
        return {key: self._failover(subsets) for key in chosen}

    def _failover(self, subsets: list[str]) -> Json:
        if not self._is_old and self._chance(0.3):
            return {"Targets": self._some(lambda: self._failover_target(subsets), 3)}
        failover: Json = {}
        if self._chance(0.6):
            failover["Service"] = self._service()
        if self._chance(0.2):
            failover["ServiceSubset"] = self._random.choice(subsets or ["v1"])
        if self._chance(0.4):
            failover["Datacenters"] = self._random.sample(DATACENTERS, 2)
            if self._broken():
                failover["Datacenters"].append("")
        return failover

    def _failover_target(self, subsets: list[str]) -> Json:
        target: Json = {}
        if self._chance(0.6):
            target["Service"] = self._service()
        field = self._random.choice(("Peer", "Datacenter", "ServiceSubset", ""))
        if field:
            chosen = {"Peer": PEERS, "Datacenter": DATACENTERS, "ServiceSubset": subsets or ["v1"]}[field]
            target[field] = self._random.choice(chosen)
        if self._broken():
            target |= {"Peer": "east", "Datacenter": "dc2"}
        return target

    def _balancer(self) -> Json:
        policies = ("random", "round_robin", "least_request", "ring_hash", "maglev", "")
        policy = "nonsense" if self._broken() else self._random.choice(policies)
        balancer: Json = {"Policy": policy}
        if policy == "ring_hash" or self._broken():
            balancer["RingHashConfig"] = {"MinimumRingSize": 10, "MaximumRingSize": 100}
        if policy == "least_request" or self._broken():
            balancer["LeastRequestConfig"] = {"ChoiceCount": 3}
        if policy in ("ring_hash", "maglev") or self._broken():
            balancer["HashPolicies"] = self._some(self._hash_policy, 2)
        return balancer

    def _hash_policy(self) -> Json:
        if self._chance(0.2):
            return {"SourceIP": True, **({"FieldValue": "x"} if self._broken() else {})}
        field = self._random.choice(("header", "cookie", "query_parameter"))
        policy: Json = {"Field": field, "FieldValue": "" if self._broken() else "x"}
        if field == "cookie" or self._broken():
            policy["CookieConfig"] = self._random.choice(({"Session": True}, {"TTL": "90s", "Path": "/"}, {}))
            if self._broken():
                policy["CookieConfig"] = {"Session": True, "TTL": "90s"}
        return policy

    def service_defaults(self) -> Json:
        entry: Json = {"Kind": "service-defaults", "Name": "*" if self._broken() else self._service()}
        if self._chance(0.96):
            entry["Protocol"] = self._spoken()
        if self._chance(0.05):
            entry["ExternalSNI"] = "x.example"
        if self._chance(0.3):
            entry["Meta"] = {"team": self._service()}
        if self._chance(0.2):
            entry["MeshGateway"] = {"Mode": self._random.choice(("none", "local", "remote"))}
        if self._chance(0.1):
            entry["TransparentProxy"] = {"DialedDirectly": True}
        if self._chance(0.15):
            entry["UpstreamConfig"] = self._upstreams()
        if not self._is_old and self._broken():
            ports = (0, 443, 70_000)
            entry["Destination"] = {"Addresses": ["a.example", "a.example"], "Port": self._random.choice(ports)}
        return entry

    def _upstreams(self) -> Json:
        defaults: Json = {"ConnectTimeoutMs": self._random.choice((-1, 0, 700)), "Protocol": "HTTP"}
        if self._chance(0.5):
            limit = -1 if self._broken() else 5
            defaults["Limits"] = {"MaxConnections": limit, "MaxPendingRequests": 0}
        if self._chance(0.5):
            defaults["PassiveHealthCheck"] = {"MaxFailures": 3, "Interval": "-2s" if self._broken() else "2s"}
        name = "*" if self._broken() else self._service()
        return {"Defaults": defaults, "Overrides": [{"Name": name, "ConnectTimeoutMs": 100}]}

    def proxy_defaults(self) -> Json:
        entry: Json = {"Kind": "proxy-defaults", "Name": "elsewhere" if self._broken() else "global"}
        if self._chance(0.95):
            key = self._random.choice(("protocol", "protocol", "Protocol"))
            entry["Config"] = {key: self._spoken()}
        if self._chance(0.2):
            entry["MeshGateway"] = {"Mode": self._random.choice(("none", "local", "remote"))}
        if self._chance(0.1):
            entry["TransparentProxy"] = {"DialedDirectly": True}
        return entry


_DESTINATION_VALUES: dict[str, tuple[Any, ...]] = {
    "RequestTimeout": DURATIONS,
    "RetryOnConnectFailure": (True, False),
    "NumRetries": (0, 5),
    "RetryOnStatusCodes": ([401, 503], []),
}
_MAKERS: dict[str, Callable[[RandomEntries], Json]] = {
    "service-router": RandomEntries.router,
    "service-splitter": RandomEntries.splitter,
    "service-resolver": RandomEntries.resolver,
    "service-defaults": RandomEntries.service_defaults,
}
_KINDS = tuple(kind for kind in _MAKERS for _ in range(1 if kind == "service-defaults" else 2))
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def in_snake_case(value: Any) -> Any:
    """The same values with their fields in the other notation. Names that tests choose are in it already."""
    if isinstance(value, dict):
        return {_WORD.sub("_", key).lower(): in_snake_case(one) for key, one in value.items()}
    return [in_snake_case(one) for one in value] if isinstance(value, list) else value
