"""docs/command-line.md names every command and every exit code."""

from __future__ import annotations

import re
import shlex

import pytest

import xds.app.commands  # noqa: F401 - registers them
from tests.cli.test_help import ROOT
from tests.support.process import REPOSITORY
from xds.cli.errors import Exit

PAGE = (REPOSITORY / "docs" / "command-line.md").read_text()
REMOVED = "upgrade-notes.md"  # names commands that are gone


def section(heading: str) -> str:
    """What stands below a heading; of the page itself, what stands above the first."""
    return re.split(r"^## ", PAGE, flags=re.MULTILINE)[0] if not heading else PAGE.split(f"## {heading}\n")[1]


def test_every_command_is_named() -> None:
    rows = re.findall(r"^\| (`.+?) \|", section(""), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w[\w-]*)`", row)}
    assert named == set(ROOT.commands)


def test_every_shared_option_is_named() -> None:
    named = set(re.findall(r"(--[a-z][a-z-]*)", section("Options that all commands have").split("\n## ")[0]))
    options = {option for param in ROOT.params for option in param.opts if option.startswith("--")}
    assert named == options - {"--version", "--install-completion", "--show-completion"}


def test_every_exit_code_is_named() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)] == list(Exit)


def in_sentences() -> list[str]:
    """The commands within the sentences of all pages. ``test_pages.py`` runs those that stand in blocks."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md")]
    texts = [re.sub("```.*?```", "", page.read_text(), flags=re.DOTALL) for page in pages if page.name != REMOVED]
    return sorted({" ".join(one.split()) for text in texts for one in re.findall("`xds ([a-z][^`|>]*)", text)})


@pytest.mark.parametrize("written", in_sentences())
def test_a_command_in_a_sentence_has_these_options_and_arguments(written: str) -> None:
    """It may leave out what the command requires, and the value of its last option."""
    root = ROOT.make_context("xds", ["version"])
    command, words = ROOT, shlex.split(written)
    while words and hasattr(command, "commands"):
        name, command, words = command.resolve_command(root, words)
    if words:
        more = ["..."] if words[-1].startswith("-") else []
        context = command.make_context(name, [*words, *more], parent=root, resilient_parsing=True)
        assert context.args in ([], more)
