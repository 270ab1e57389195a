"""``xds load``: the load that clients report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from xds.cli.client import Client
from xds.cli.output import Format, to_json, to_yaml
from xds.cli.table import Column, Style, TableLayout, rendered

Json = dict[str, Any]

# The breakdowns of a cluster's load, and the key of each in the API's answer.
ROWS = {"locality": "localities", "node": "reporters", "endpoint": "endpoints"}
_ERRORS_BAD, _ERRORS_WARN = 0.05, 0.005


def load_text(client: Client, query: Mapping[str, str], style: Style) -> str:
    """All clusters as text. Raises ``CommandError``."""
    return rendered(client.items("/load", query), CLUSTERS, style)


def cluster_text(found: Json, style: Style) -> str:
    """One cluster as text, from the answer of ``cluster_load``. Raises ``CommandError``."""
    if style.format is Format.YAML:
        return to_yaml(found)
    if style.format in {Format.JSON, Format.JSONL}:
        return to_json(found, style.format)
    return rendered(found[ROWS[found["by"]]], _VIEWS[found["by"]], style)


def cluster_load(client: Client, cluster: str, query: Mapping[str, str]) -> Json:
    """One cluster with all its rows. Raises ``CommandError``."""
    path = f"/load/{quote(cluster, safe='')}"
    found = client.call("GET", path, query)
    rows = found[ROWS[found["by"]]]
    while token := found.pop("next_page_token", ""):
        page = client.call("GET", path, {**query, "page_token": token})
        rows += page[ROWS[found["by"]]]
        found["next_page_token"] = page.get("next_page_token", "")
    return found


def summary(found: Json) -> str:
    """A cluster on one line."""
    drops = ", ".join(f"{category} {_number(number)}" for category, number in found["drops"].items())
    nodes = found["nodes"]
    parts = [
        f"{found['cluster']}: {_rate(found)} rps over {_number(found['window_s'])} s",
        f"{_percent('error_ratio', found)} errors",
        f"{found['in_progress']} in progress",
        f"{_number(found['dropped'])} dropped{f' ({drops})' if drops else ''}",
        f"{nodes} {'node' if nodes == 1 else 'nodes'}",
    ]
    return " · ".join(parts)


def _number(value: float) -> str:
    """The number, without decimals if they are negligible."""
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def _count(key: str, item: Json) -> str:
    return _number(item[key])


def _rate(item: Json) -> str:
    return f"{item['rps']:.1f}"


def _percent(key: str, item: Json) -> str:
    return f"{100 * item[key]:.1f}%"


def _errors_style(item: Json) -> str:
    ratio = item["error_ratio"]
    return "bad" if ratio >= _ERRORS_BAD else "warn" if ratio >= _ERRORS_WARN else ""


def _place(key: str, item: Json) -> str:
    return "/".join(filter(None, item.get(key, {}).values()))


def _metrics(item: Json) -> str:
    return ",".join(f"{name}={metric['average']:.3g}" for name, metric in item["metrics"].items())


def _drops(item: Json) -> str:
    return ",".join(f"{category}={_number(number)}" for category, number in item["drops"].items())


_TRAFFIC = (
    Column("RPS", _rate),
    Column("ERRORS", partial(_percent, "error_ratio"), _errors_style),
    Column("IN-PROGRESS", lambda item: str(item["in_progress"])),
)
_COUNTS = (
    Column("SUCCEEDED", partial(_count, "successes"), is_wide=True),
    Column("FAILED", partial(_count, "errors"), is_wide=True),
    Column("ISSUED", partial(_count, "issued"), is_wide=True),
    Column("METRICS", _metrics, is_wide=True),
)
_SHARE = Column("SHARE", partial(_percent, "share"))
_FROM = Column("FROM", partial(_place, "source"))
_TO = Column("TO", partial(_place, "locality"))
_SEEN = Column("REPORTED", lambda item: item["reported"], is_time=True)

CLUSTERS = TableLayout(
    name=lambda item: str(item["cluster"]),
    columns=(
        Column("CLUSTER", lambda item: item["cluster"]),
        *_TRAFFIC,
        Column("DROPPED", partial(_count, "dropped")),
        Column("NODES", lambda item: str(item["nodes"])),
        _SEEN,
        Column("SERVICE", lambda item: item["service_name"], is_wide=True),
        *_COUNTS,
        Column("DROPS", _drops, is_wide=True),
    ),
)

_VIEWS = {
    "locality": TableLayout(name=partial(_place, "locality"), columns=(_FROM, _TO, *_TRAFFIC, _SHARE, *_COUNTS)),
    "node": TableLayout(
        name=lambda item: str(item["node"]),
        columns=(Column("NODE", lambda item: item["node"]), _FROM, *_TRAFFIC, _SHARE, _SEEN, *_COUNTS),
    ),
    "endpoint": TableLayout(
        name=lambda item: str(item["endpoint"]),
        columns=(Column("ENDPOINT", lambda item: item["endpoint"]), _FROM, _TO, *_TRAFFIC, _SHARE, *_COUNTS),
    ),
}
