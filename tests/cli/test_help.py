"""``--help``: every command stands in a group, and every option says what its value is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.commands import FinishedCommand, xds
from tests.support.resources import cluster_load_assignment, eds_cluster, static_cluster
from xds.app.commands import run
from xds.cli.app import app
from xds.cli.help_layout import OTHER, OTHER_NAMES, SECTIONS
from xds.fleet.event_log import EventKind

ROOT: Any = get_command(app)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    below = getattr(command, "commands", {})
    if not below:
        yield words
    for name, each in below.items():
        yield from commands(each, (*words, name))


def test_every_command_is_in_one_group() -> None:
    assert run is not None  # the commands are registered by the import
    placed = [name for names in SECTIONS.values() for name in names]
    assert len(placed) == len(set(placed))
    assert set(ROOT.commands) <= set(placed)
    assert OTHER not in xds("--help").out


def short_helps(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every command and every group of commands, with its line in ``--help``."""
    for name, each in getattr(command, "commands", {}).items():
        yield " ".join((*words, name)), each.get_short_help_str(1000)
        yield from short_helps(each, (*words, name))


def test_a_command_has_one_whole_line_in_the_list_of_commands() -> None:
    """On a terminal of 80 columns, 60 remain beside the longest name."""
    assert [(words, text) for words, text in short_helps(ROOT) if not 0 < len(text) <= 60] == []
    assert "..." not in xds("--help").out.partition("Push:")[2]


def test_names_of_other_tools_lead_to_the_command() -> None:
    for name, wanted in OTHER_NAMES.items():
        told = xds(name, "edge")
        assert (told.code, f"Did you mean {wanted!r}?" in told.err) == (2, True)


def test_options_describe_their_values() -> None:
    kinds = ("<path>", "<list[Path]>", "<int range>", "<int>", "<float>")
    shown = {words: help_of(words).partition("Options:")[2] for words in commands(ROOT)}
    assert [words for words, text in shown.items() if not text] == []
    assert [(words, kind) for words, text in shown.items() for kind in kinds if kind in text] == []


def help_of(words: tuple[str, ...]) -> str:
    """What ``--help`` prints, without a process of its own."""
    command = ROOT
    for word in words:
        command = command.commands[word]
    text: str = command.get_help(Context(command, info_name=words[-1]))
    return text


def completed(words: str, address: str) -> FinishedCommand:
    """What a shell is told for the last of these words."""
    return xds(
        environment={
            "XDS_ADDR": address,
            "_XDS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
    )


# The end of a command line, and what completes its last word.
COMPLETED = {
    "export edge": ["edge-a"],
    "apply --canary 1 --canary-nodes no": ["node-1"],
    "apply --canary 1 --canary-nodes other,no": ["other,node-1"],
    "group set edge-a --rollout-nodes no": ["node-1"],
    "nodes -g edge": ["edge-a"],
    "describe node no": ["node-1"],
    "describe group edge": ["edge-a"],
    "config node": ["node-1"],
    "config node-1 cl": ["clusters"],
    "get gr": ["groups"],
    "get cl": ["clusters"],
    "get -g edge-a cluster w": ["web-1", "web-2"],
    "describe -g edge-a clusters web-2": ["web-2"],
    "explain node-1 listeners": ["listeners"],
    "troubleshoot no": ["node-1"],
    "timeline no": ["node-1"],
    "nodes --order t": ["trouble"],
    "endpoints show -g edge-a w": ["web-2"],
    "service show sh": ["shop"],
    "chain sh": ["shop"],
    "config-entry read service-defaults sh": ["shop"],
    "sources reg": ["registration"],
    "context use no-such": [],
}


@pytest.fixture(scope="module")
def named(remote: Remote) -> Iterator[str]:
    """The address of a server with names; the group of the node is that of its cluster."""
    server = remote.server
    server.push("edge-a", [static_cluster("web-1", 80), eds_cluster("web-2"), cluster_load_assignment("web-2", 80)])
    server.push("other", [])
    shop = {"Name": "shop", "Address": "10.0.0.1", "Port": 80}
    assert server.request("PUT", "/api/v1/registrations/shop-1", json=shop).is_success
    entry = {"protocol": "http"}
    assert server.request("PUT", "/api/v1/config-entries/service-defaults/shop", json=entry).is_success
    with Proxy(server.grpc_port, "node-1", "edge-a") as proxy:
        proxy.answer()
        yield f"127.0.0.1:{server.http_port}"


@pytest.mark.parametrize("words", COMPLETED)
def test_a_shell_completes_names(named: str, words: str) -> None:
    found = completed(f"xds {words}", named)
    assert (found.out.split(), found.err) == (COMPLETED[words], "")


def test_the_server_of_the_command_line_is_asked(named: str) -> None:
    assert completed(f"xds export --server http://{named} edge", "127.0.0.1:1").out.split() == ["edge-a"]


def test_a_server_that_cannot_be_asked_completes_nothing() -> None:
    absent = completed("xds export edge", "127.0.0.1:1")
    assert (absent.out.strip(), absent.err) == ("", "")


def test_the_help_of_watch_names_every_kind_of_event() -> None:
    text = next(option.help for option in ROOT.commands["watch"].params if option.name == "kinds")
    assert sorted(text.partition(";")[0].split(", ")) == sorted(EventKind)
