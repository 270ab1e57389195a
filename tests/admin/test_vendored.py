"""Libraries of others that the pages load: the files are those of their packages, and their licence is beside them."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files

VENDOR = files("xds.admin") / "assets" / "vendor"
ROW = re.compile(r"^\| `([^`]+)` \| .* \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_every_file_is_listed_with_its_checksum() -> None:
    listed = dict(ROW.findall((VENDOR / "README.md").read_text()))
    present = {
        each.name: sha256(each.read_bytes()).hexdigest() for each in VENDOR.iterdir() if each.name != "README.md"
    }
    assert present == listed


def test_a_library_has_its_licence_beside_it() -> None:
    for library in {each.name.partition(".")[0] for each in VENDOR.iterdir()} - {"README"}:
        assert "Permission is hereby granted" in (VENDOR / f"{library}.LICENSE").read_text()


def test_no_library_loads_anything() -> None:
    for each in VENDOR.iterdir():
        if each.name.endswith((".js", ".css")):
            text = each.read_text()
            assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|\bimport\b|@import|url\(|\.innerHTML", text)
