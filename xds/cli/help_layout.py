"""The layout of ``--help``: commands in sections, and metavars for the values of options."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SECTIONS: dict[str, list[str]] = {
    "Begin": ["demo", "init", "envoy"],
    "Push": ["apply", "put", "delete", "diff", "validate", "convert", "export", "rollout"],
    "Inspect": [
        *("nodes", "nacks", "config", "explain", "timeline", "troubleshoot", "describe", "get", "watch", "history"),
        "release",
    ],
    "Services and traffic": ["endpoints", "load"],
    "Groups and rights": ["group", "auth", "whoami", "audit"],
    "Server": ["serve", "bootstrap", "check", "members", "backup", "restore", "store", "context", "version"],
}
OTHER = "Other commands"
# What users of other tools call a command of this one.
OTHER_NAMES = {"rollback": "rollout undo", "undo": "rollout undo", "push": "apply", "status": "rollout status"}

_FILE, _NAME = "FILE", "NAME"
# Metavars by the name of the parameter.
METAVARS: dict[str, str] = {
    "admin_port": "PORT",
    "assignment": _NAME,
    "bootstrap": _FILE,
    "ca": _FILE,
    "cacert": _FILE,
    "cert": _FILE,
    "cluster": "CLUSTER",
    "config": _FILE,
    "cursor": "POSITION",
    "data": "DIRECTORY",
    "descriptor_set": _FILE,
    "file": _FILE,
    "from_revision": "REVISION",
    "group": "GROUP",
    "grpc": "HOST:PORT",
    "http": "HOST:PORT",
    "id": "ID",
    "key": _FILE,
    "limit": "N",
    "log_level": "LEVEL",
    "message": "TEXT",
    "name": _NAME,
    "node": "NODE",
    "node_file": _FILE,
    "node_id": "NODE",
    "on_nack": "hold|proceed",
    "policy": _FILE,
    "priority": "N",
    "reason": "TEXT",
    "region": _NAME,
    "revision": "REVISION",
    "selector": "SELECTOR",
    "server": "URL",
    "service": "SERVICE",
    "since": "AGE|TIME",
    "snapshot": _FILE,
    "sub_zone": _NAME,
    "to": "REVISION",
    "to_revision": "REVISION",
    "token": "TOKEN",
    "token_file": _FILE,
    "type": "TYPE",
    "watch": "DIRECTORY",
    "weight": "N",
    "xds_addr": "HOST:PORT",
    "zone": _NAME,
}


def place(section: str, *names: str, is_first: bool = False, after: str = "") -> None:
    """List commands of a feature in a section, at its end or its beginning; a new section stands after another one."""
    if section not in SECTIONS:
        titles = list(SECTIONS)
        behind = {title: SECTIONS.pop(title) for title in titles[titles.index(after) + 1 :]}
        SECTIONS.update({section: [], **behind})
    members = SECTIONS[section]
    new = [name for name in names if name not in members]
    SECTIONS[section] = [*new, *members] if is_first else [*members, *new]


def name_values(params: list[Any]) -> list[Any]:
    """The parameters; those without a metavar get one, unless they are flags."""
    for param in params:
        if param.metavar is None and not getattr(param, "is_flag", False) and param.name in METAVARS:
            param.metavar = METAVARS[param.name]
    return params


class SectionedGroup(TyperGroup):
    """The root command. ``--help`` lists its commands by `SECTIONS`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the command, with metavars."""
        return name_values(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named. A name of another tool leads to the command of this one."""
        if args and args[0] in OTHER_NAMES:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {OTHER_NAMES[args[0]]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, section by section."""
        names = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, names))
        listed = {name for members in SECTIONS.values() for name in members}
        rest = tuple(name for name in names if name not in listed)
        for title, members in (*SECTIONS.items(), (OTHER, rest)):
            shown = [(name, self.commands[name]) for name in members if name in self.commands]
            rows = [(name, each.get_short_help_str(width)) for name, each in shown if not each.hidden]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
