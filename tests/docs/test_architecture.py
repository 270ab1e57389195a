"""The picture and the table of rooms in docs/internals/architecture.md are those of the import contracts."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from tests.support.process import REPOSITORY
from xds.app.features import FEATURES

PAGE = (REPOSITORY / "docs" / "internals" / "architecture.md").read_text()
PICTURE = PAGE.partition("<!-- rooms:")[2].partition("<!-- end of rooms -->")[0]
BANDS = [re.findall(r"│ (.+?) +│", band) for band in PICTURE.split("├")]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]


def rooms(line: str) -> set[str]:
    """The rooms of one line of the picture, without the stars of pure ones."""
    return {room.strip(" *") for room in line.split("·")}


def contract(beginning: str) -> dict[str, Any]:
    """The import contract whose name begins so."""
    (found,) = (each for each in CONTRACTS if each["name"].startswith(beginning))
    return found


def test_the_picture_has_the_layers_of_the_contract_in_their_order() -> None:
    layers = contract("A room imports only rooms of lines below it")["layers"]
    pictured = [rooms(line) for band in BANDS for line in band]
    assert pictured == [{module.strip().removeprefix("xds.") for module in layer.split("|")} for layer in layers]


def test_the_features_are_one_band_above_the_kernel() -> None:
    _, features, *kernel = BANDS
    names = {type(feature).__module__.split(".")[1] for feature in FEATURES}
    assert names and names <= {room for line in features for room in rooms(line)}
    assert not names & {room for band in kernel for line in band for room in rooms(line)}


def test_stars_mark_the_pure_rooms() -> None:
    marked = set(re.findall(r"([a-z]+)\*", PICTURE))
    pure = contract("Pure packages")["source_modules"]
    assert marked == {module.removeprefix("xds.") for module in pure if module.count(".") == 1}


def test_every_room_has_a_row_in_the_table() -> None:
    described = set(re.findall(r"`xds/([a-z]+)(?:\.py)?`", "".join(re.findall(r"(?m)^\| (`.+?) \|", PAGE))))
    assert described == {room for band in BANDS for line in band for room in rooms(line)}
