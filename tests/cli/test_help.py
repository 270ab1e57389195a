"""``--help``: every command stands in a group, and every option says what its value is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.conftest import Remote
from tests.support.commands import xds
from xds.cli.app import app
from xds.cli.commands import run
from xds.cli.help_layout import OTHER, SECTIONS

ROOT: Any = get_command(app)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    below = getattr(command, "commands", {})
    if not below:
        yield words
    for name, each in below.items():
        yield from commands(each, (*words, name))


def test_every_command_stands_in_one_group() -> None:
    assert run is not None  # the commands are registered by the import
    placed = [name for _, names in SECTIONS for name in names]
    assert len(placed) == len(set(placed))
    assert set(ROOT.commands) <= set(placed)
    assert OTHER not in xds("--help").out


@pytest.mark.parametrize("words", sorted(commands(ROOT)), ids=" ".join)
def test_an_option_says_what_its_value_is(words: tuple[str, ...]) -> None:
    shown = xds(*words, "--help").out.partition("Options:")[2]
    assert shown
    assert not [kind for kind in ("<path>", "<list[Path]>", "<int range>", "<int>", "<float>") if kind in shown], shown


def test_a_shell_completes_groups_and_nodes(remote: Remote) -> None:
    remote.server.push("edge-a", [])
    remote.server.push("other", [])
    words = "xds export edge"
    environment = {
        "XDS_ADDR": f"127.0.0.1:{remote.server.http_port}",
        "_XDS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": "2",
    }
    assert xds(environment=environment).out.split() == ["edge-a"]
    absent = xds(environment={**environment, "XDS_ADDR": "127.0.0.1:1"})
    assert (absent.out.strip(), absent.err) == ("", "")
