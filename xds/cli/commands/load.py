"""``xds load``: the load that clients report."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xds.calls import load as of_load
from xds.calls.call import ApiCall
from xds.cli.app import Command, app, shared
from xds.cli.arguments import parse_duration
from xds.cli.client import Client
from xds.cli.commands.events import show_regularly
from xds.cli.completion import complete_reported
from xds.cli.output import Format, counted, say, to_json, to_yaml, write
from xds.cli.table import Column, Style, TableLayout, locality_text, rendered

if TYPE_CHECKING:
    from xds.admin.models.load import LoadDetail

Json = dict[str, Any]

NO_LOAD = "no load reports: `xds bootstrap` lets proxies report, `xds nodes` shows which are connected"
_NO_ROWS = {
    "endpoint": "no load by endpoint: set load.by_endpoint at the server, `xds load --by locality` has the rest"
}
# The breakdowns of a cluster's load, and the key of each in the API's answer.
ROWS = {"locality": "localities", "node": "reporters", "endpoint": "endpoints"}
_BAD, _WARN = 0.05, 0.005  # ratios of failed or dropped requests


def load_text(client: Client, window_s: float, style: Style) -> str:
    """All clusters as text. Raises ``CommandError``."""
    return rendered(client.items(of_load.load(window_s=window_s)), CLUSTERS, style, NO_LOAD)


def cluster_text(load: Json, style: Style) -> str:
    """One cluster as text, from the answer of ``cluster_load``. Raises ``CommandError``."""
    if style.format is Format.YAML:
        return to_yaml(load)
    if style.format in {Format.JSON, Format.JSONL}:
        return to_json(load, style.format)
    return rendered(load[ROWS[load["by"]]], _VIEWS[load["by"]], style, _NO_ROWS.get(load["by"], ""))


def cluster_load(client: Client, call: ApiCall[LoadDetail]) -> Json:
    """One cluster with all its rows. Raises ``CommandError``."""
    load = client.run(call)
    rows = load[ROWS[load["by"]]]
    while token := load.pop("next_page_token", ""):
        page = client.run(call, token)
        rows += page[ROWS[load["by"]]]
        load["next_page_token"] = page.get("next_page_token", "")
    return load


def summary(load: Json) -> str:
    """A cluster in a line, over the window of its rows."""
    nodes = load["nodes"]
    sums = _of_latest_reports(load) if load["by"] == "node" else _of_window(load)
    return " · ".join((f"{load['cluster']}: {sums}", f"{counted(nodes, 'node')}"))


def _of_window(load: Json) -> str:
    drops = ", ".join(f"{category} {_number(number)}" for category, number in load["drops"].items())
    dropped = f"{load['dropped_rps']:.1f}/s dropped ({_percent('drop_ratio', load)} of all requests)"
    parts = (
        f"{_rate(load)} rps over {_number(load['window_s'])} s",
        f"{_percent('error_ratio', load)} errors",
        f"{load['in_progress']} in progress",
        f"{dropped}{f': {drops}' if drops else ''}",
    )
    return " · ".join(parts)


def _of_latest_reports(load: Json) -> str:
    """The sums over the latest report of each node: older reports of nodes are not kept."""
    rows = load["reporters"]
    errors, finished = sum(row["errors"] for row in rows), sum(row["errors"] + row["successes"] for row in rows)
    windows = sorted({row["window_s"] for row in rows})
    over = "-".join(map(_number, {windows[0]: 0, windows[-1]: 0})) if windows else "0"
    parts = (
        f"{sum(row['rps'] for row in rows):.1f} rps over the latest report of each node ({over} s)",
        f"{100 * errors / finished if finished else 0.0:.1f}% errors",
        f"{sum(row['in_progress'] for row in rows)} in progress",
    )
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


def _ratio_style(key: str) -> Callable[[Json], str]:
    def style(item: Json) -> str:
        return "bad" if item[key] >= _BAD else "warn" if item[key] >= _WARN else ""

    return style


def _place(key: str, item: Json) -> str:
    return locality_text(item.get(key, {}))


def _metrics(item: Json) -> str:
    return ",".join(f"{name}={metric['average']:.3g}" for name, metric in item["metrics"].items())


def _drops(item: Json) -> str:
    return ",".join(f"{category}={_number(number)}" for category, number in item["drops"].items())


_TRAFFIC = (
    Column("RPS", _rate),
    Column("ERRORS", partial(_percent, "error_ratio"), _ratio_style("error_ratio")),
    Column("IN-PROGRESS", "in_progress"),
)
_COUNTS = (
    Column("SUCCEEDED", partial(_count, "successes"), is_wide=True),
    Column("FAILED", partial(_count, "errors"), is_wide=True),
    Column("ISSUED", partial(_count, "issued"), is_wide=True),
    Column("METRICS", _metrics, is_wide=True, is_prose=True),
)
_SHARE = Column("SHARE", partial(_percent, "share"))
_FROM = Column("FROM", partial(_place, "source"))
_TO = Column("TO", partial(_place, "locality"))
_PRIORITY = Column("PRIORITY", "priority", lambda item: "warn" if item["priority"] else "")
_SEEN = Column("REPORTED", "reported", is_time=True)

CLUSTERS = TableLayout(
    name="cluster",
    columns=(
        Column("CLUSTER", "cluster"),
        *_TRAFFIC,
        Column("DROPS/S", lambda item: f"{item['dropped_rps']:.1f}"),
        Column("DROP%", partial(_percent, "drop_ratio"), _ratio_style("drop_ratio")),
        Column("NODES", "nodes"),
        _SEEN,
        Column("SERVICE", "service_name", is_wide=True),
        Column("GROUPS", lambda item: ",".join(item["groups"]), is_wide=True, is_prose=True),
        *_COUNTS,
        Column("DROPPED", partial(_count, "dropped"), is_wide=True),
        Column("DROPS", _drops, is_wide=True, is_prose=True),
    ),
)

_VIEWS = {
    "locality": TableLayout(
        name=partial(_place, "locality"), columns=(_FROM, _TO, _PRIORITY, *_TRAFFIC, _SHARE, *_COUNTS)
    ),
    "node": TableLayout(
        name="node",
        columns=(Column("NODE", "node"), _FROM, *_TRAFFIC, _SHARE, _SEEN, *_COUNTS),
    ),
    "endpoint": TableLayout(
        name="endpoint",
        columns=(
            Column("ENDPOINT", "endpoint"), _FROM, _TO, _PRIORITY, *_TRAFFIC, _SHARE, *_COUNTS,
        ),
    ),
}  # fmt: skip


class By(StrEnum):
    """How the load of a cluster is broken down."""

    LOCALITY = "locality"
    NODE = "node"
    ENDPOINT = "endpoint"


@app.command(cls=Command)
def load(
    context: typer.Context,
    cluster: Annotated[
        str, typer.Argument(help="Only this cluster, broken down.", autocompletion=complete_reported)
    ] = "",
    by: Annotated[By, typer.Option(help="One row per locality, node or endpoint.")] = By.LOCALITY,
    window: Annotated[
        str, typer.Option(help="Time over which load is averaged, such as 60s or 5m; at most 1h.", metavar="DURATION")
    ] = "60s",
    service: Annotated[str, typer.Option(help="Only this EDS service name.")] = "",
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Refresh every two seconds.")] = False,
) -> None:
    """Show the load that proxies report. With requests per second, errors, requests in progress, drops.

    \b
    Examples:
      xds load
      xds load web --by node --window 5m
      xds load web -w
    """
    options = shared(context)
    client, style = options.connect(), options.style()
    window_s = parse_duration(window)
    if not cluster:
        if watch:
            show_regularly(lambda: load_text(client, window_s, style))
        else:
            write(load_text(client, window_s, style))
        return
    call = of_load.cluster_load(cluster, by=by.value, service_name=service, window_s=window_s)
    if watch:
        show_regularly(lambda: cluster_text(cluster_load(client, call), style))
        return
    cluster_document = cluster_load(client, call)
    write(cluster_text(cluster_document, style))
    if style.is_table:
        say(summary(cluster_document))
