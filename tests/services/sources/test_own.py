"""A source of one's own: the example of the documentation, and what is wrong with others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.process import REPOSITORY
from tests.support.recording_sink import RecordingSink, running_source
from xds.model.node import Locality
from xds.services.core.source import SourceError
from xds.services.source_builders import load_source

EXAMPLE = REPOSITORY / "examples" / "own-source"


def write(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


async def test_the_example_follows_its_table(tmp_path: Path) -> None:
    database = tmp_path / "inventory.db"
    source = load_source("inventory", "inventory:make", {"database": str(database), "every_s": 0.05}, EXAMPLE)
    assert (source.name, source.kind) == ("inventory", "inventory")
    sink = RecordingSink()
    async with running_source(source, sink):
        await sink.wait_until(lambda: bool(sink.failures))
        write(
            database,
            "CREATE TABLE instances (service, address, port, weight, zone)",
            "INSERT INTO instances VALUES ('web', '10.0.0.1', 80, 2, 'a'), ('web', '10.0.0.2', 80, 1, NULL)",
        )
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80", "10.0.0.2:80"})
        assert (sink.services["web"][0].weight, sink.services["web"][0].locality) == (2, Locality("", "a"))
        write(database, "DELETE FROM instances WHERE address = '10.0.0.1'")
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.2:80"})
        alive_n = sink.alive_n
        await sink.wait_until(lambda: sink.alive_n > alive_n)


MODULE = """
class Source:
    kind = "mine"
    def __init__(self, name): self.name = name
    async def run(self, sink): ...

def make(name, options): return Source(name)
def misnamed(name, options): return Source("other")
def nothing(name, options): return object()
def raises(name, options): raise KeyError(options["url"])
value = 3
"""


@pytest.mark.parametrize(
    ("object_path", "told"),
    [
        ("no_such_module_here:make", "ModuleNotFoundError"),
        ("my_broken_source:make", "my_broken_source:make: SyntaxError"),
        ("my_sources:absent", "AttributeError"),
        ("my_sources:value", "TypeError"),
        ("my_sources:raises", "KeyError: 'url'"),
        ("my_sources:nothing", "made 'object', which has no name, kind, run"),
        ("my_sources:misnamed", "made a source named 'other', not 'mine'"),
    ],
)
def test_an_object_that_is_no_source_is_refused(tmp_path: Path, object_path: str, told: str) -> None:
    (tmp_path / "my_sources.py").write_text(MODULE)
    (tmp_path / "my_broken_source.py").write_text("def (")
    assert load_source("mine", "my_sources:make", {}, tmp_path).name == "mine"
    with pytest.raises(SourceError) as raised:
        load_source("mine", object_path, {}, tmp_path)
    assert told in str(raised.value)


def test_the_page_shows_the_whole_example() -> None:
    code = (EXAMPLE / "inventory.py").read_text()
    shown = code[code.index("from __future__") :]
    assert shown in (REPOSITORY / "docs" / "services.md").read_text()
