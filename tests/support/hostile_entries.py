"""Config entries with strange texts: Envoy must accept what the server does not refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.support.lowering import decoded, lowered
from xds.mesh.core.entries.entry import read_entry
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.model.errors import ValidationError

Json = dict[str, Any]

TEXTS = (
    *("a", " ", "a b", "\u00e9", "\u2028", "\n", "a\x00b", "\t", '"', "'", "x;y", "x,y", "x=y", "a" * 300, "a" * 5_000),
    *(
        "%",
        "%%",
        "a%b",
        "50%%",
        "%REQ(x)%",
        "%REQ(x",
        "%REQ(x)",
        "%REQ(x):3%",
        "%REQ(x):y%",
        "%PROTOCOL%",
        "%PROTOCOL%%",
        "%PROTOCOL(x)%",
        "%USER%",
        "%REQ%",
        "%START_TIME(%Y):3%",
    ),
    *(
        "(",
        "[",
        "{",
        "\\",
        "*a",
        "a*",
        "a{1,200}",
        "a{2000}",
        "(?i)a",
        "(?=a)",
        "\\d+",
        "\\pN",
        "\\1",
        "\\x{1F600}",
        "[^/]{9}",
        "tasks" * 20,
        "(a|b)*c",
        "^a$",
    ),
    *("/", "//", "/a?b", "/a#b", "/\u00e9", "/a\nb", "/../a", "/%2f", "/a\\1", "\\2", "/(", "/a.b", "/[x]"),
    *(":path", ":method", ":authority", "Host", "host", "Content-Length", "transfer-encoding", "connection", "TE"),
)

Make = Callable[[str], Json]


def _router(**route: Any) -> Json:
    return {"Kind": "service-router", "Name": "web", "Routes": [route]}


def _match(**http: Any) -> Json:
    return _router(Match={"HTTP": http})


def _destination(**fields: Any) -> Json:
    return _router(Destination=fields)


def _rewritten(kind: str, text: str, rewrite: str) -> Json:
    return _router(Match={"HTTP": {kind: text}}, Destination={"PrefixRewrite": rewrite})


def _hashed(**policy: Any) -> Json:
    balancer = {"Policy": "maglev", "HashPolicies": [policy]}
    return {"Kind": "service-resolver", "Name": "web", "LoadBalancer": balancer}


MAKERS: dict[str, Make] = {
    "exact": lambda text: _match(PathExact=text),
    "prefix": lambda text: _match(PathPrefix=text),
    "regex": lambda text: _match(PathRegex=text),
    "header-name": lambda text: _match(Header=[{"Name": text, "Present": True}]),
    "header-exact": lambda text: _match(Header=[{"Name": "x", "Exact": text}]),
    "header-regex": lambda text: _match(Header=[{"Name": "x", "Regex": text, "Invert": True}]),
    "query-name": lambda text: _match(QueryParam=[{"Name": text, "Present": True}]),
    "query-regex": lambda text: _match(QueryParam=[{"Name": "x", "Regex": text}]),
    "rewrite": lambda text: _rewritten("PathPrefix", "/a", text),
    "root-rewrite": lambda text: _rewritten("PathPrefix", f"/{text}", "/"),
    "root-rewrite-any-case": lambda text: _router(
        Match={"HTTP": {"PathPrefix": f"/{text}", "CaseInsensitive": True}}, Destination={"PrefixRewrite": "/"}
    ),
    "add": lambda text: _destination(RequestHeaders={"Add": {"x": text}}),
    "set": lambda text: _destination(ResponseHeaders={"Set": {"x": text}}),
    "set-name": lambda text: _destination(RequestHeaders={"Set": {text: "v"}}),
    "remove": lambda text: _destination(ResponseHeaders={"Remove": [text]}),
    "hashed-header": lambda text: _hashed(Field="header", FieldValue=text),
    "hashed-cookie": lambda text: _hashed(Field="cookie", FieldValue=text, CookieConfig={"Session": True}),
    "cookie-path": lambda text: _hashed(Field="cookie", FieldValue="c", CookieConfig={"TTL": "1s", "Path": text}),
    "hashed-query": lambda text: _hashed(Field="query_parameter", FieldValue=text),
}


def hostile_entries() -> Iterator[tuple[str, ConfigEntries]]:
    """For each field: its name, and one entry with all texts that the server accepts."""
    for name, make in MAKERS.items():
        taken = [made for made in map(make, TEXTS) if _is_accepted(made)]
        whole = taken[0]
        if "Routes" in whole:
            whole = {**whole, "Routes": [route for one in taken for route in one["Routes"]]}
        else:
            policies = [policy for one in taken for policy in one["LoadBalancer"]["HashPolicies"]]
            whole = {**whole, "LoadBalancer": {"Policy": "maglev", "HashPolicies": policies}}
        yield name, _entries(whole)


def _entries(value: Json) -> ConfigEntries:
    proxies = {"Kind": "proxy-defaults", "Config": {"protocol": "http"}}
    return ConfigEntries.of(read_entry(one).entries[0] for one in (proxies, value))


def _is_accepted(value: Json) -> bool:
    try:
        decoded(lowered({"upstreams": [{"service": "web", "bind_port": 1}]}, _entries(value)))
    except ValidationError:
        return False
    return True
