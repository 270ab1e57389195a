"""The options of a careful rollout, which all commands that push take (`takes_rollout`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from xds.cli.arguments import parse_duration
from xds.cli.client import RefusedError, with_option_names
from xds.cli.completion import complete_node_list
from xds.cli.errors import CommandError, Exit
from xds.cli.option_group import takes

Json = dict[str, Any]

ALL_AT_ONCE = "all_at_once"
OFF = "off"  # no failed share of requests is a failure
DEFAULT_PLAN = "default"  # as a value: the plan of the group, else that of the server

_OF_PLAN = ("--canary-selector", "--canary-nodes", "--hold", "--max-nacks", "--max-errors", "--on-failure")

MaxErrorsOption = Annotated[
    str,
    typer.Option(
        help="How much more of its requests the wave may fail than the others, such as 2%; or off.", metavar="SHARE"
    ),
]
OnFailureOption = Annotated[
    str,
    typer.Option(
        help="Take a failed push back (the default), or hold: keep the wave, and wait for a person.",
        metavar="rollback|hold",
    ),
]
HoldOption = Annotated[
    str, typer.Option(help="How long a wave must run before the next, such as 60s.", metavar="DURATION")
]
MaxNacksOption = Annotated[
    int | None, typer.Option(min=0, help="How many nodes may NACK before it is a failure (0).", metavar="NODES")
]

PushTimeoutOption = Annotated[
    str,
    typer.Option(help="How long to wait (60s); with --canary: how long a wave may take (5m).", metavar="DURATION"),
]


def plan_document(
    waves: str = "",
    selector: str = "",
    nodes: str = "",
    hold: str = "",
    timeout: str = "",
    max_nacks: int | None = None,
    max_errors: str = "",
    on_failure: str = "",
) -> Json:
    """What the options name of a plan, in the API's terms. Raises ``CommandError``."""
    plan: Json = {}
    for name, text in (("waves", waves), ("nodes", nodes)):
        if text:
            plan[name] = [part.strip() for part in text.split(",")]
    if max_nacks is not None:
        plan["max_nacks"] = max_nacks
    for name, text in (("hold_s", hold), ("timeout_s", timeout)):
        if text:
            plan[name] = parse_duration(text)
    errors = "100%" if max_errors == OFF else max_errors
    given = (("selector", selector), ("max_errors", errors), ("on_failure", on_failure))
    return {**plan, **{name: text for name, text in given if text}}


def plan_text(plan: Json | None) -> str:
    """A plan of the server: ``1,10%,50%, hold 60s, timeout 300s, then rollback``."""
    if plan is None:
        return ""
    named = [plan["selector"]] if plan.get("selector") else []
    named += [f"{len(plan['nodes'])} named nodes"] if plan.get("nodes") else []
    bounds = [f"NACKs at most {plan['max_nacks']}"] if plan["max_nacks"] else []
    errors = plan["max_errors"]
    bounds += [] if errors is None else [f"errors at most {errors:.3g}" if errors < 1 else f"errors {OFF}"]
    times = [f"hold {plan['hold_s']:g}s", f"timeout {plan['timeout_s']:g}s"]
    return ", ".join((*named, ",".join(plan["waves"]), *times, *bounds, f"on failure {plan['on_failure']}"))


def rollout_options(
    canary: Annotated[
        str,
        typer.Option(
            help="Roll out carefully: to these counts or shares of the nodes (1,10%,50%), and then to all. "
            "Without a value: by the plan of the group.",
            metavar="[=PLAN]",
        ),
    ] = "",
    canary_selector: Annotated[
        str, typer.Option(help="With --canary: the first waves are the nodes of this filter.", metavar="FILTER")
    ] = "",
    canary_nodes: Annotated[
        str,
        typer.Option(
            help="With --canary: the first waves are these nodes.",
            metavar="ID,ID",
            autocompletion=complete_node_list,
        ),
    ] = "",
    hold: HoldOption = "",
    timeout: PushTimeoutOption = "",
    max_nacks: MaxNacksOption = None,
    max_errors: MaxErrorsOption = "",
    on_failure: OnFailureOption = "",
    all_at_once: Annotated[
        bool, typer.Option("--all-at-once", help="To all nodes now, although the group has a plan.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Push again what a rollout has taken back.")] = False,
) -> Json:
    """The options of a call. Raises ``CommandError``."""
    of_wave = timeout if canary else ""
    named = plan_document("", canary_selector, canary_nodes, hold, of_wave, max_nacks, max_errors, on_failure)
    if all_at_once and (canary or named):
        raise CommandError(Exit.USAGE, "--all-at-once has no plan: leave out the options of --canary")
    if named and not canary:
        raise CommandError(Exit.USAGE, f"{', '.join(_OF_PLAN)} need --canary")
    given: Json = {"retry": True} if retry else {}
    if all_at_once:
        return {**given, "rollout": ALL_AT_ONCE}
    if canary:
        return {**given, "rollout": {**plan_document("" if canary == DEFAULT_PLAN else canary), **named}}
    return given


def wait_limit_s(timeout: str, rollout: Json) -> float:
    """How long a command waits at most; 0: `xds.cli.wait` decides. Raises ``CommandError``."""
    is_of_plan = isinstance(rollout.get("rollout"), dict)
    return parse_duration(timeout) if timeout and not is_of_plan else 0.0


def takes_rollout(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `rollout_options`, which it gets as ``rollout``: the options of its call."""
    extended = takes(rollout_options, "rollout")(command)

    @wraps(extended)
    def run(**values: Any) -> None:
        try:
            extended(**values)
        except RefusedError as error:
            raise with_option_names(error, {"rollout": "--canary"}) from None

    return run
