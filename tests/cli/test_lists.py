"""Every list of the command line: natural order, the width of the terminal, and words where there is nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.cli.numbered_world import NAMES, NUMBERS, POLICY, PREFIX, numbered_world
from tests.cli.test_help import ROOT, commands
from tests.support.commands import COMMANDS, FinishedCommand, address
from tests.support.resources import cluster_load_assignment, eds_cluster, steered_cluster, zoned_load_assignment
from tests.support.server import ServerProcess
from xds.cli.fitting import text_width

ONE = NAMES[0]
ORDERED = [str(number) for number in sorted(NUMBERS)]
WIDTHS = (80, 120)
ATTEMPTS = 10

# Each list by its command, as it is asked for in the world of the numbered names.
BY_NAME: dict[str, list[str]] = {
    "get": ["groups"],
    "nodes": [],
    "config": [ONE],
    "sources": [],
    "load": [],
    "services": [],
    "group list": [],
    "rollout list": [],
    "endpoints list": ["-g", "edge"],
    "endpoints bindings": ["-g", "bound"],
    "service show": ["web"],
    "service registered": [],
    "assignment show": ["-g", "edge"],
    "config-entry list": [],
    "upstreams list": [],
    "upstreams get": ["mesh"],
    "context list": [],
}
BY_TIME: dict[str, list[str]] = {
    "nacks": [],
    "timeline": [ONE],
    "history": [],
    "audit": [],
    "rollout history": ["edge"],
    "assignment history": [ONE, "-g", "edge"],
    "config-entry history": [],
}
# By the steps of what they describe, or in the order that was pushed.
BY_STEP: dict[str, list[str]] = {
    "check": [],
    "members": [],
    "troubleshoot": [ONE, "--to", ONE],
    "rollout status": ["edge"],
    "endpoints show": [ONE, "-g", "edge"],
    "explain": [ONE],
    "describe": ["node", ONE],
}
# The same commands with other arguments.
BESIDE: list[list[str]] = [
    ["get", "clusters", "-g", "edge"],
    ["get", "resources", "-g", "edge"],
    ["load", ONE, "--by", "node"],
]
LISTS = BY_NAME | BY_TIME | BY_STEP
# Writes, documents, streams of lines, and commands without a server.
NO_LISTS = {
    *("serve", "bootstrap", "version", "validate", "convert", "apply", "put", "diff", "delete", "export", "release"),
    *("chain", "backup", "restore", "whoami", "auth whoami", "watch", "group show", "group set", "group delete"),
    *("rollout undo", "rollout pause", "rollout resume", "rollout promote", "rollout abort", "demo", "init", "envoy"),
    *("endpoints set", "endpoints add", "endpoints drain", "endpoints remove", "endpoints delete"),
    *("endpoints bind", "endpoints unbind", "service register", "service deregister", "service maintain"),
    *("source accept", "destination get", "destination profile", "destination explain", "assignment set"),
    *("assignment delete", "config-entry write", "config-entry read", "config-entry delete", "config-entry diff"),
    *("config-entry undo", "upstreams set", "upstreams delete", "store check", "store copy"),
    "store rotate-secret",
    *("context set", "context use", "context delete", "auth test"),
}
ASKED = [[*words.split(), *arguments] for words, arguments in LISTS.items()] + BESIDE


class World:
    """A server, and a user with contexts."""

    def __init__(self, remote: Remote, home: Path) -> None:
        self._environment = {**address(remote.server.http_port), "XDG_CONFIG_HOME": str(home), "COLUMNS": ""}

    def run(self, *arguments: str) -> FinishedCommand:
        """A command whose output goes to a file."""
        return COMMANDS.run(arguments, environment=self._environment)

    def show(self, columns: int, *arguments: str) -> FinishedCommand:
        """A command on a terminal without colors."""
        return COMMANDS.run_in_terminal([*arguments, "--color", "never"], columns, self._environment)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with numbered_world(tmp_path_factory.mktemp("world")) as remote:
        made = World(remote, tmp_path_factory.mktemp("home"))
        for name in NAMES:
            assert made.run("context", "set", name, "--server", "http://127.0.0.1:1").code == 0
        yield made


@pytest.fixture(scope="module")
def empty_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server with one group that has no resources."""
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"]))
        server.push("default", [])
        server.push("apart", [])
        server.push("still", [steered_cluster("web"), zoned_load_assignment("web", {"za": [1], "zb": []})])
        server.push("bare", [eds_cluster("web"), cluster_load_assignment("web")])
        policy = server.request("PUT", "/api/v1/groups/still/assignments/web", json=POLICY)
        assert policy.is_success, policy.text
        yield World(Remote(server), tmp_path_factory.mktemp("home"))


def test_every_command_is_known_as_a_list_or_not() -> None:
    assert {" ".join(words) for words in commands(ROOT)} == LISTS.keys() | NO_LISTS


@pytest.mark.xdist_group("lists")
@pytest.mark.parametrize("asked", [*([*words.split(), *BY_NAME[words]] for words in BY_NAME), *BESIDE], ids=" ".join)
def test_names_are_in_natural_order(world: World, asked: list[str]) -> None:
    for format in ("name", "table"):
        ran = world.run(*asked, "-o", format)
        assert ran.code == 0, ran.err
        rows = [re.findall(rf"{PREFIX}(\d+)", line) for line in ran.out.splitlines()]
        assert list(dict.fromkeys(row[0] for row in rows if row)) == ORDERED, f"-o {format}\n{ran.out}"


# What is printed of a list or a description besides names that begin with `PREFIX`.
NAMED: dict[str, list[str]] = {
    "explain": NAMES,
    "get resources": [f"{type}/{PREFIX}{number}" for type in ("clusters", "endpoints") for number in sorted(NUMBERS)],
    "assignment show": [f"{PREFIX}{number}" for number in sorted(NUMBERS)],
    "describe node": [ONE],
    "describe group": ["edge"],
    "describe cluster": [ONE],
}


@pytest.mark.xdist_group("lists")
@pytest.mark.parametrize(
    "asked", [*ASKED, ["describe", "group", "edge"], ["describe", "cluster", ONE, "-g", "edge"]], ids=" ".join
)
def test_names_are_one_a_line_without_repetition(world: World, asked: list[str]) -> None:
    ran = world.run(*asked, "-o", "name")
    assert ran.code in (0, 1), ran.err
    lines = ran.out.splitlines()
    assert lines and all(re.fullmatch(r"[^\s:]+(:[^\s:]+)*", line) for line in lines), ran.out
    assert len(set(lines)) == len(lines), ran.out
    expected = NAMED.get(" ".join(asked[:2])) or NAMED.get(asked[0])
    assert expected is None or sorted(lines) == sorted(expected)


@pytest.mark.xdist_group("lists")
@pytest.mark.parametrize("format", ["table", "wide"])
@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_a_table_fits_the_terminal_and_is_whole_elsewhere(world: World, asked: list[str], format: str) -> None:
    widths = WIDTHS if format == "table" else WIDTHS[1:]
    whole, screens = at_rest(world, widths, [*asked, "-o", format])
    assert whole.code in (0, 1), whole.err
    assert "…" not in re.sub("… [0-9]* ?PENDING", "", whole.out)
    for columns, shown in zip(widths, screens, strict=True):
        assert shown.code == whole.code
        rows, lines = whole.out.splitlines(), shown.out.splitlines()
        assert max(map(text_width, lines)) <= columns, shown.out
        is_wider = max(map(text_width, rows)) > columns
        # Below each table that is shortened stands how to see the rest. The bars of assignments adapt to the width.
        is_cut = "append `| cat`" in shown.out
        assert is_cut is is_wider or (is_wider and asked[:2] == ["assignment", "show"]), shown.out
        assert len([line for line in lines if not line.startswith("(shortened")]) == len(rows), shown.out


def at_rest(world: World, widths: Sequence[int], asked: list[str]) -> tuple[FinishedCommand, list[FinishedCommand]]:
    """A command's output to a file and on terminals, of the same content: ages grow, and decisions are made."""
    whole = world.run(*asked)
    for _ in range(ATTEMPTS):
        screens, before, whole = [world.show(columns, *asked) for columns in widths], whole, world.run(*asked)
        if shape(before) == shape(whole):
            return whole, screens
    raise AssertionError(f"{' '.join(asked)} changed in each of {ATTEMPTS} attempts\n{before.out}\n{whole.out}")


def shape(ran: FinishedCommand) -> tuple[int, list[int]]:
    """What the layout depends on: the exit code, and the width of each line."""
    return ran.code, [text_width(line) for line in ran.out.splitlines()]


# Of a group that is not the default one.
OF_A_GROUP: list[list[str]] = [
    *(["get", "clusters"], ["get", "resources"], ["endpoints", "list"], ["endpoints", "list", "--live"]),
    *(["endpoints", "bindings"], ["assignment", "show"]),
]


# On a server without groups, and on one with an empty group.
BARE: list[list[str]] = [["get", "groups"], ["group", "list"], ["history"], ["audit"]]
EMPTY: list[list[str]] = [
    *(
        words.split()
        for words, arguments in BY_NAME.items()
        if not arguments and words not in {"sources", "group list"}
    ),
    *(["get", "clusters"], ["get", "resources"], ["nodes", "-g", "none"], ["nacks"], ["nacks", "-g", "none"]),
    *(["history", "--actor", "nobody"], ["audit", "--actor", "nobody"], ["config-entry", "history"]),
    *(["endpoints", "list"], ["endpoints", "list", "--live"], ["endpoints", "bindings"], ["assignment", "show"]),
]


@pytest.fixture(scope="module")
def bare_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"]))
        yield World(Remote(server), tmp_path_factory.mktemp("home"))


@pytest.mark.xdist_group("lists")
@pytest.mark.parametrize("asked", BARE, ids=" ".join)
def test_a_server_without_groups_says_the_next_command(bare_world: World, asked: list[str]) -> None:
    judge_empty(bare_world, asked)


@pytest.mark.xdist_group("lists")
@pytest.mark.parametrize("asked", EMPTY, ids=" ".join)
def test_an_empty_list_is_explained_with_the_next_command(empty_world: World, asked: list[str]) -> None:
    judge_empty(empty_world, asked)


@pytest.mark.xdist_group("lists")
@pytest.mark.parametrize("asked", OF_A_GROUP, ids=" ".join)
def test_an_empty_list_of_a_group_is_explained_with_a_command_for_the_group(
    empty_world: World, asked: list[str]
) -> None:
    judge_command(judge_empty(empty_world, [*asked, "-g", "apart"]), "apart")


@pytest.mark.xdist_group("lists")
@pytest.mark.parametrize("words, group", [("endpoints show", "bare"), ("assignment history", "still")])
def test_an_empty_list_of_a_cluster_is_explained_with_a_command_for_its_group(
    empty_world: World, words: str, group: str
) -> None:
    judge_command(judge_empty(empty_world, [*words.split(), "web", "-g", group]), group)


def judge_command(said: str, group: str) -> None:
    """The command that a message names means this group."""
    named = re.findall(r"`(xds [^`]*)`", said)
    assert named, said
    assert all(re.search(rf" (-g|describe group) {group}\b", command) for command in named), said


def test_quiet_commands_and_documents_say_nothing_of_it(bare_world: World) -> None:
    assert bare_world.run("group", "list", "-q").err == ""
    assert bare_world.run("group", "list", "-o", "json").err == ""
    assert bare_world.show(80, "group", "list", "-q").out.split()[0] == "GROUP"


def judge_empty(world: World, asked: list[str]) -> str:
    """Piped, the headers are alone, and a message has a command that there is; on a terminal the message is alone.

    Returns the message.
    """
    piped = world.run(*asked)
    assert piped.code == 0, piped.err
    assert len(piped.out.splitlines()) == 1, piped.out
    said = next((line for line in piped.err.splitlines() if re.search(r"\b(no|nothing)\b", line)), "")
    named = re.findall(r"`xds ([a-z]+(?:-[a-z]+)?)( [a-z]+)?", said)
    assert named, said
    known = {" ".join(words) for words in commands(ROOT)}
    assert all(first in known or first + second in known for first, second in named), said
    assert world.show(80, *asked).out == f"{said}\n"
    return said
