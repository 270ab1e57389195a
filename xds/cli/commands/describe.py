"""``xds describe``: one group, node or resource in detail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import typer

from xds.calls import fleet, groups
from xds.calls.server import watched_directory
from xds.cli.app import Command, app, shared
from xds.cli.arguments import GroupOption
from xds.cli.careful_rollouts import is_told, rollout_line
from xds.cli.client import Client, document_of
from xds.cli.completion import complete_resource, complete_subject
from xds.cli.health import DAY_S, EXPIRY_DAYS, expiry, refused_line, seconds_left
from xds.cli.lingering import LINGERING, held_text
from xds.cli.nack_table import NACKS
from xds.cli.node_table import up_text
from xds.cli.output import age, printable, to_yaml, write_answer
from xds.cli.resources import known_type, snapshot
from xds.cli.rollout_options import plan_text
from xds.cli.rollout_tables import HISTORY, types_table
from xds.cli.table import Column, Style, TableLayout, actor_text, locality_text, rendered

Json = dict[str, Any]
Key = tuple[str, str]  # (type_url, name)

SHOWN = 10

TYPES = TableLayout(
    name="type",
    columns=(
        Column("TYPE", "type"),
        Column("STATE", "state"),
        Column("SINCE", "since", is_time=True),
        Column("REVISION", lambda item: "" if item["revision"] is None else str(item["revision"])),
        Column("SENT", "version_sent"),
        Column("ACKED", "version_acked"),
        Column("SUBSCRIBED", lambda item: _names(item["subscribed"]), is_prose=True),
        Column("MISSING", lambda item: _names(item["missing"]), is_prose=True),
    ),
)

STREAMS = TableLayout(
    name="id",
    columns=(
        Column("STREAM", "id"),
        Column("SERVICE", "service"),
        Column("VARIANT", "variant"),
        Column("API", "api"),
        Column("PEER", "peer"),
        Column("OPENED", "opened", is_time=True),
    ),
)

CERTIFICATES = TableLayout(
    name="name",
    columns=(
        Column("EXPIRES", expiry, lambda item: "warn" if seconds_left(item) < EXPIRY_DAYS * DAY_S else ""),
        Column("TYPE", "type"),
        Column("NAME", "name"),
        Column("FOR", lambda item: ", ".join(item["names"])),
        Column("NOT_AFTER", "not_after"),
    ),
)

LINKS = TableLayout(
    name="name",
    columns=(
        Column("HOW", "how"),
        Column("TYPE", "type"),
        Column("NAME", lambda item: str(item.get("meaning", item["name"]))),
        Column("HERE", lambda item: "yes" if item["exists"] else "no", lambda item: "" if item["exists"] else "warn"),
    ),
)


def described(client: Client, kind: str, name: str, group: str, secrets: bool = False) -> Json:
    """The details as a document: ``group``, ``node`` or ``resource``, and related items."""
    if kind in {"group", "groups"}:
        return _group(client, name)
    if kind in {"node", "nodes"}:
        return _node(client, name)
    return _resource(client, group, known_type(kind), name, secrets)


def described_text(document: Json, style: Style) -> str:
    """The document as text."""
    make_text = next(make for kind, make in _TEXTS.items() if kind in document)
    return "\n".join(part for part in make_text(document, style) if part)


def _group(client: Client, group: str) -> Json:
    return {
        "group": client.run(groups.group(group)),
        "rollout": client.run(groups.rollout(group)),
        "revisions": list(islice(client.items(groups.history(group).limited(SHOWN)), SHOWN)),
        "nacks": list(islice(client.items(fleet.nacks(group=group, state="open")), SHOWN)),
        "watch_refused": client.run(watched_directory(group=group))["refused"],
        "certificates": list(islice(client.items(fleet.certificates(group=group)), SHOWN)),
    }


def _node(client: Client, node: str) -> Json:
    return {
        "node": client.run(fleet.node(node)),
        "nacks": list(islice(client.items(fleet.nacks(node=node)), SHOWN)),
    }


def _resource(client: Client, group: str, type: str, name: str, secrets: bool) -> Json:
    answer = client.fetch(groups.resource(group, type, name, show_secrets=secrets))
    return {
        "resource": document_of(answer),
        "group": group,
        "etag": answer.headers.get("etag", "").strip('"'),
        "version": answer.headers.get("x-resource-version", ""),
        "references": list(_references(client, group, type, name)),
    }


def _references(client: Client, group: str, type: str, name: str) -> Iterator[Json]:
    """What the resource refers to, and the resources that refer to it. Raises ``CommandError``."""
    from xds.codec.resources import decode_resource
    from xds.model.errors import ValidationError
    from xds.model.resource_type import type_url_of

    members = {}
    for document in snapshot(client, group)["resources"]:
        try:
            resource = decode_resource(document)
        except ValidationError:
            continue  # a resource with redacted secrets cannot be decoded; such a resource has no references
        members[resource.type_url, resource.name] = resource
    target = (type_url_of(type), name)
    for reference in members[target].references if target in members else ():
        yield _use((reference.type_url, reference.name), members)
    for key, resource in members.items():
        if any((reference.type_url, reference.name) == target for reference in resource.references):
            yield _link("used by", key, True)


def _use(key: Key, members: Collection[Key]) -> Json:
    """A reference of a resource: to one resource, to all of a type, or to unknown clusters."""
    from xds.model.names import WILDCARD
    from xds.model.resource_type import alias_of

    if key[1] != WILDCARD:
        return _link("uses", key, key in members)
    if alias_of(key[0]) == "clusters":
        return {**_link("may use", key, True), "meaning": "any cluster (content that cannot be read)"}
    return _link("uses", key, any(type_url == key[0] for type_url, _ in members))


def _link(how: str, key: Key, exists: bool) -> Json:
    from xds.push.content import type_label

    return {"how": how, "type": type_label(key[0]), "name": key[1], "exists": exists}


def _group_text(document: Json, style: Style) -> Iterator[str]:
    group, rollout = document["group"], document["rollout"]
    yield fields_text(
        {
            "group": group["group"],
            "revision": f"{group['revision']} ({group['etag']})",
            "pushed": f"{_when(group['time'], style)} by {actor_text(group) or '-'}",
            "message": group["message"],
            "selector": group.get("selector"),
            "priority": group.get("priority"),
            "on NACK": group.get("on_nack"),
            "removals": _removals(group),
            "watch": "; ".join(map(refused_line, document["watch_refused"])),
            "resources": ", ".join(f"{count} {type}" for type, count in group["resources"].items()),
            "plan": plan_text(group.get("rollout")),
            "rollout": rollout_line(rollout) if is_told(rollout) else "",
            "nodes": f"{group['nodes']} connected; {rollout['synced']} synced, {rollout['pending']} pending,"
            f" {rollout['nacked']} nacked",
        }
    )
    yield types_table(rollout, style)
    yield _titled("certificates:", document["certificates"], CERTIFICATES, style)
    yield _titled("open NACKs:", document["nacks"], NACKS, style)
    yield _titled("revisions:", document["revisions"], HISTORY, style)


def _removals(group: Json) -> str:
    """The group's own settings for lingering."""
    parts = {"stay": group.get("removal_delay_s"), "more behind listeners": group.get("listener_drain_s")}
    return ", ".join(f"{what} {seconds:g} s" for what, seconds in parts.items() if seconds is not None)


def _admin(node: Json) -> str:
    """Where Envoy's admin page is. Envoy does not report a port that it chose itself."""
    if node.get("admin"):
        return f"http://{node['admin']}, on its machine"
    is_envoy = str(node["user_agent"]).startswith("envoy ")
    return "Envoy logged it as `admin address`; `xds bootstrap --admin-port` makes it known here" if is_envoy else ""


def _node_text(document: Json, style: Style) -> Iterator[str]:
    node = document["node"]
    yield fields_text(
        {
            "node": node["id"],
            "server": node.get("server", ""),
            "cluster": node["cluster"],
            "locality": locality_text(node["locality"]),
            "group": node["group"],
            "rollout": {"head": "in the wave", "base": "outside of the wave"}.get(node.get("line", ""), ""),
            "agent": node["user_agent"],
            "admin": _admin(node),
            "up": up_text(node),
            "first seen": _when(node["first_seen"], style),
        }
    )
    yield rendered(({"type": type, **state} for type, state in node["types"].items()), TYPES, style)
    yield "".join(f"held: {printable(held_text(each))}\n" for each in node["held"])
    yield _titled("lingering:", node["lingering"], LINGERING, style)
    yield _titled("streams:", node["streams"], STREAMS, style)
    yield _titled("NACKs:", document["nacks"], NACKS, style)


def _resource_text(document: Json, style: Style) -> Iterator[str]:
    yield fields_text({"group": document["group"], "version": document["version"], "etag": document["etag"]})
    yield _titled("references:", document["references"], LINKS, style)
    yield to_yaml(document["resource"])


_TEXTS: Mapping[str, Callable[[Json, Style], Iterator[str]]] = {
    "resource": _resource_text,
    "node": _node_text,
    "group": _group_text,
}


def fields_text(values: Mapping[str, object]) -> str:
    """Fields that have a value, one per line."""
    width = max(map(len, values)) + 1
    return "".join(
        f"{f'{name}:':{width}} {printable(str(value))}\n" for name, value in values.items() if value not in {None, ""}
    )


def _titled(title: str, items: list[Json], layout: TableLayout, style: Style) -> str:
    return f"{title}\n{rendered(items, layout, style)}" if items else ""


def _when(timestamp: str, style: Style) -> str:
    return timestamp if style.timestamps else f"{age(timestamp)} ago"


def _names(names: list[str]) -> str:
    shown = ",".join(names[:SHOWN])
    return f"{shown},..." if len(names) > SHOWN else shown


@app.command(cls=Command)
def describe(
    context: typer.Context,
    kind: Annotated[
        str, typer.Argument(help="group, node, or a resource type such as cluster.", autocompletion=complete_subject)
    ],
    name: Annotated[str, typer.Argument(help="The name.", autocompletion=complete_resource)],
    group: GroupOption = "default",
) -> None:
    """Show a group, node or resource in detail.

    \b
    Examples:
      xds describe group edge
      xds describe node edge-1
      xds describe cluster web -g edge
    """
    options = shared(context)
    document = described(options.connect(), kind, name, group, options.show_secrets)
    write_answer(options.output, document, lambda: described_text(document, options.style()), [name])
