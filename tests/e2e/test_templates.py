"""Every template of ``xds init``: its own commands, in their order, with a real Envoy that ``xds envoy`` starts."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.clone import (
    HTTP,
    LISTENER,
    SERVE,
    Clone,
    Row,
    Walk,
    envoy_command,
    fails,
    says,
    sees,
    starts,
    try_commands,
)
from xds.cli.templates import Template, template_text

# In the comment at the head of a snapshot, and in the README of a folder.
COMMENTED, INDENTED = r"^#   (\S.*)", r"^    (\S.*)"
APPLY = "xds apply -g default -f {}.yaml --wait"


def commands(text: str, pattern: str) -> list[str]:
    """The commands of a template, without the remarks behind them."""
    head = text.split("resources:\n", maxsplit=1)[0].replace("\\\n#     ", "")
    return [re.sub(r" {3,}.*", "", command) for command in re.findall(pattern, head, re.MULTILINE)]


def written(clone: Clone, template: Template) -> Path:
    """The file or folder that ``xds init`` writes, with the ports of the clone."""
    clone.run(f"xds init {template}")
    path = clone.directory / (template if template is Template.MESH else f"{template}.yaml")
    for file in path.glob("*.yaml") if path.is_dir() else [path]:
        file.write_text(clone.adapted(file.read_text()))
    return path


def after_change(file: str, old: str, new: str, row: Row) -> Row:
    """The row, with one text of a file replaced before."""

    def tried(clone: Clone, command: str) -> None:
        path = clone.directory / file
        text = path.read_text()
        assert clone.adapted(old) in text
        path.write_text(text.replace(clone.adapted(old), clone.adapted(new)))
        row(clone, command)

    return tried


def upstream(port: str) -> Row:
    return starts(f"upstream-{port}", port)


SERVED = says("1 of 1 nodes have revision 1")
# Without clusters: an Envoy that has just started does not subscribe to listeners yet, and is not waited for.
PUSHED = says("group default: revision 1: ")
SERVER_AND_ENVOY: Walk = [("xds serve", SERVE), ("xds envoy", envoy_command("envoy-1"))]
WALKS: dict[Template, Walk] = {
    Template.HELLO: [
        *SERVER_AND_ENVOY,
        ("python -m http.server 18001 --bind 127.0.0.1", upstream("18001")),
        (APPLY.format("hello"), SERVED),
        ("curl http://127.0.0.1:10000/", says("Directory listing")),
    ],
    Template.WEIGHTED: [
        *SERVER_AND_ENVOY,
        ("python -m http.server 18001 --bind 127.0.0.1", upstream("18001")),
        ("python -m http.server 18002 --bind 127.0.0.1", upstream("18002")),
        (APPLY.format("weighted"), SERVED),
        ("curl -sI http://127.0.0.1:10000/", says("^x-version: v[12]")),
    ],
    Template.TLS: [
        (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=localhost"
            " -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem",
            says(),
        ),
        *SERVER_AND_ENVOY,
        (APPLY.format("tls"), PUSHED),
        ("curl --cacert cert.pem https://127.0.0.1:10443/", sees("^Hello over TLS!$")),
    ],
    Template.CANARY: [
        ("xds serve", SERVE),
        ("xds envoy --node-id edge-1", envoy_command("edge-1")),
        ("xds envoy --node-id edge-2", envoy_command("edge-2")),
        (APPLY.format("canary"), PUSHED),
        ("curl http://127.0.0.1:10000/", sees("^version 1$")),
        (
            "xds apply -g default -f canary.yaml --canary 1 --hold 5s --max-errors off --wait",
            after_change("canary.yaml", "version 1\\n", "version 2\\n", says("promoted")),
        ),
        ("xds rollout list", says()),
        ("xds nodes --line head", says()),
        (
            "xds apply -g default -f canary.yaml --canary 1 --wait",
            after_change("canary.yaml", LISTENER, HTTP, fails(1, "rolled back|taken back")),
        ),
        ("xds rollout history default", says("rejected|rolled back")),
    ],
    Template.MESH: [
        ("xds serve --config xds.yaml", SERVE),
        ("python -m http.server 18001 --bind 127.0.0.1 --directory v1", upstream("18001")),
        ("python -m http.server 18002 --bind 127.0.0.1 --directory v2", upstream("18002")),
        ("xds envoy --node-id shop-1 --cluster shop", envoy_command("shop-1")),
        ("xds config-entry write -f entries.yaml", says()),
        ("xds upstreams set shop -f upstreams.yaml", says()),
        ("curl http://127.0.0.1:10000/", sees("^version [12]$")),
    ],
}


@pytest.mark.parametrize("template", Template)
def test_the_commands_of_a_template_serve_it(template: Template, tmp_path: Path, running: ExitStack) -> None:
    clone = Clone(tmp_path, running)
    path = written(clone, template)
    if template is Template.MESH:
        clone.enter(path.name)
        found = commands((path / "README.md").read_text(), INDENTED)
    else:
        found = commands(template_text(template), COMMENTED)
    try_commands(template, found, WALKS[template], clone)
