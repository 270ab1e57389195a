"""The documents in ``api`` are what the code says, and files that the code accepts are valid by them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.support.process import REPOSITORY
from tools.contracts import DOCUMENTS, FOLDER

FILES = [*sorted(REPOSITORY.glob("examples/*/xds.yaml")), REPOSITORY / "deploy/systemd/xds.yaml"]


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.schema.json").read_text())
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_published_document_is_current(name: str) -> None:
    assert json.loads((FOLDER / name).read_text()) == DOCUMENTS[name](), "run `make generate`"


@pytest.mark.parametrize("name", ["settings", "policy"])
def test_a_schema_is_valid_json_schema(name: str) -> None:
    assert jsonschema_rs.meta.is_valid(schema(name))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_settings_of_the_examples_are_valid(file: Path) -> None:
    jsonschema_rs.validator_for(schema("settings")).validate(yaml.safe_load(file.read_text()))


def test_settings_of_the_page_are_valid() -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    jsonschema_rs.validator_for(schema("settings")).validate(yaml.safe_load(blocks[0]))


def test_an_unknown_setting_is_invalid() -> None:
    assert not jsonschema_rs.validator_for(schema("settings")).is_valid({"server": {"grpc": {"prot": 1}}})


def test_the_names_of_earlier_releases_are_valid() -> None:
    """`xds.settings.settings.MOVED`"""
    check = jsonschema_rs.validator_for(schema("settings"))
    assert check.is_valid({"server": {"order": False}}) and not check.is_valid({"server": {"order": 7}})


def test_the_policy_of_the_example_is_valid() -> None:
    policy = yaml.safe_load((REPOSITORY / "examples/two-zones/policy.yaml").read_text())
    check = jsonschema_rs.validator_for(schema("policy"))
    check.validate(policy)
    assert not check.is_valid({key: value for key, value in policy.items() if key != "capacity"})


def test_every_contract_is_described() -> None:
    page = (FOLDER / "README.md").read_text()
    files = {path.relative_to(FOLDER).parts for path in FOLDER.rglob("*") if path.is_file()} - {("README.md",)}
    top = {"/".join(parts[:2]) for parts in files}
    assert {name for name in top if f"]({name})" not in page} == set()
