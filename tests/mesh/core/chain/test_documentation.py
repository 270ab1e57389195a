"""docs/discovery-chain.md: its example compiles to what it says, and its tables are complete."""

from __future__ import annotations

import re

from tests.mesh.core.chain.comparison import STRICTER
from tests.support.chains import lines, request_of
from tests.support.process import REPOSITORY
from xds.consul.shape import ITEMS_LIMIT, KEY_LIMIT
from xds.mesh.core.chain.chain import Flaw
from xds.mesh.core.chain.compilation import DEPTH_LIMIT
from xds.mesh.core.chain.compile import LEGS_LIMIT, compile_chain
from xds.mesh.core.entries.entry import KINDS, read_entries

PAGE = (REPOSITORY / "docs" / "discovery-chain.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_compiles_to_the_chain_that_is_shown() -> None:
    shown = re.search(r"of `web` that results:\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert lines(compile_chain(request_of(block("yaml")))) == shown[1].splitlines()
    assert len(read_entries(block("yaml")).entries) == 4


def test_every_kind_and_every_flaw_is_explained() -> None:
    for word in (*KINDS, *(flaw.value for flaw in Flaw), *STRICTER):
        assert f"`{word}`" in PAGE


def test_the_limits_are_those_of_the_code() -> None:
    assert f"a path of more than {DEPTH_LIMIT} redirects and splits" in PAGE
    assert f"more than {LEGS_LIMIT:,} legs made by flattening" in PAGE
    assert f"lists and maps have {ITEMS_LIMIT:,} items at most, names and keys {KEY_LIMIT:,} characters" in PAGE
