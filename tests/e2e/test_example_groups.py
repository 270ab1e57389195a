"""Each example has a group of its own: all of them can be pushed to one server, one after the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.support.clone import HTTP, SERVE, Clone, commands
from tests.support.process import REPOSITORY

# The pages that push an example to a group. README.md pushes the smallest one, to the group "default".
PAGES = {path.parent.name: path for path in sorted((REPOSITORY / "examples").glob("*/README.md"))} | {
    "hello": REPOSITORY / "README.md",
    "two-zones": REPOSITORY / "docs/load-assignment.md",
}
PUSH = re.compile(r"xds (?:apply|upstreams set)\b")
PREPARED = (
    "xds init",
    "certificate.py make",
    "sed 's/weight",
    "config-entry write -f examples/mesh/entries",
    "grpc_tools.protoc",
)


def pushes(page: Path) -> Iterator[str]:
    """The commands that push, with those that write what they push; no proxy is waited for."""
    for command in commands(page):
        if PUSH.match(command) or any(part in command for part in PREPARED):
            yield re.sub(r" --wait\b", "", command)


def group_of(command: str) -> str:
    words = shlex.split(command)
    return words[words.index("-g") + 1] if "-g" in words else words[3]


def groups(page: Path) -> set[str]:
    return {group_of(command) for command in pushes(page) if PUSH.match(command)}


def test_no_two_examples_share_a_group() -> None:
    owners = {name: groups(page) for name, page in PAGES.items()}
    named = [(group, name) for name, every in owners.items() for group in every]
    assert len({group for group, _ in named}) == len(named), named
    assert len(named) >= 10, named
    assert [name for name, every in owners.items() if len(every) > 1] == []


def test_proxies_of_an_example_are_in_its_group() -> None:
    """A node follows the group that is named like its cluster."""
    for name, page in PAGES.items():
        clusters = {
            words[words.index("--cluster") + 1] if "--cluster" in words else "default"
            for words in map(shlex.split, commands(page))
            if words[:2] == ["xds", "bootstrap"]
        }
        assert not groups(page) or clusters <= groups(page), (name, clusters)


def test_pages_that_start_an_envoy_name_the_processes_to_stop_first() -> None:
    """Two Envoys on one port share the connections in silence, and a second one does not start without a flag."""
    for name, page in PAGES.items():
        starting = "envoy -c envoy.yaml" in commands(page)
        text = " ".join(page.read_text().split())
        assert not starting or name == "hello" or "Stop the Envoy and the upstreams of other examples first" in text, (
            name
        )


def test_all_examples_are_pushed_to_one_server(tmp_path: Path, running: ExitStack) -> None:
    clone = Clone(tmp_path, running, {"XDS_CODEC__DESCRIPTOR_SETS": '["flags.binpb"]'})
    clone.run(next(each for each in pushes(PAGES["custom-type"]) if "protoc" in each))
    SERVE(clone, "xds serve")
    held: dict[str, str] = {}
    for page in PAGES.values():
        for command in pushes(page):
            clone.run(command, 3 if "refused-by-server" in command else 0)
            if PUSH.match(command) and "refused-by-server" not in command:
                held[group_of(command)] = clone.run(f"xds get resources -g {group_of(command)} -o name")
    for group, names in held.items():
        assert clone.run(f"xds get resources -g {group} -o name") == names, group
        assert names.strip(), group
    assert clone.fetches(clone.url(HTTP, "/readyz"))
