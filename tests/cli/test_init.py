"""``xds init``: what it writes is commented, valid, and listens on the loopback; nothing is overwritten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.commands import xds
from tests.support.process import LOOPBACK, REPOSITORY
from xds.cli.templates import Template, template_text, write_template

SNAPSHOTS = [template for template in Template if template is not Template.MESH]
# The example of the same content: its documentation and its tests name it by this path.
EXAMPLES = {Template.HELLO: "hello", Template.WEIGHTED: "weighted-split", Template.TLS: "tls-sds"}


@pytest.fixture(autouse=True)
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def addresses(value: Any) -> Iterator[str]:
    """Every address in a document."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from addresses(each)
    if isinstance(value, dict) and isinstance(value.get("address"), str):
        yield value["address"]


def resources(text: str) -> list[Any]:
    """The resources of a snapshot."""
    found: list[Any] = yaml.safe_load(text)["resources"]
    return found


@pytest.mark.parametrize("template", SNAPSHOTS)
def test_a_snapshot_is_commented_valid_and_on_the_loopback(template: Template) -> None:
    write_template(template, "")
    path = Path(f"{template}.yaml")
    text = path.read_text()
    assert text.startswith("# ")
    assert f"apply -g default -f {path} --wait" in text
    assert set(addresses(yaml.safe_load(text))) == {LOOPBACK}
    checked = xds("validate", "-f", path.absolute(), "--failure-threshold", "warning")
    assert checked.code == 0, checked.out
    assert xds("init", template, "-o", "-").out == text


@pytest.mark.parametrize("template", EXAMPLES)
def test_a_snapshot_begins_with_what_the_example_has(template: Template) -> None:
    ours = resources(template_text(template))
    theirs = resources((REPOSITORY / "examples" / EXAMPLES[template] / "snapshot.yaml").read_text())
    if template is Template.WEIGHTED:  # its route also adds a header, the example has upstreams that say who they are
        del theirs[-1]
    assert ours[: len(theirs)] == theirs


@pytest.mark.parametrize("template", Template)
def test_what_is_there_is_kept(template: Template, tmp_path: Path) -> None:
    target = tmp_path / "here"
    target.write_text("mine")
    refused = xds("init", template, "-o", target)
    assert (refused.code, refused.out, target.read_text()) == (2, "", "mine")
    assert "is there already" in refused.err
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "elsewhere")
    assert xds("init", template, "-o", dangling).code == 2
    assert not (tmp_path / "elsewhere").exists()


def test_the_mesh_is_a_folder(remote: Remote, tmp_path: Path) -> None:
    assert remote.xds("init", "mesh", "-o", tmp_path / "mesh").code == 0
    readme = (tmp_path / "mesh/README.md").read_text()
    for path in (tmp_path / "mesh").glob("*.yaml"):
        assert path.read_text().startswith("# ")
        assert path.name in readme
        assert set(re.findall(r"[0-9]+(?:[.][0-9]+){3}", path.read_text())) <= {LOOPBACK}
    checked = remote.xds("config-entry", "write", "-f", tmp_path / "mesh/entries.yaml", "--dry-run")
    assert checked.code == 0, checked.err
    printed = xds("init", "mesh", "-o", "-")
    assert (printed.code, "folder" in printed.err) == (2, True)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    missing = xds("init", "-o", tmp_path / "no" / "hello.yaml")
    assert (missing.code, "No such file" in missing.err) == (2, True)
    assert xds("init", "no-such-template").code == 2
