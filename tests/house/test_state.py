"""The check of pure packages finds what changes in the process, and nothing else."""

from __future__ import annotations

import pytest

from tests.house.conftest import MakeRepository
from tools.house.state import shared_state

PURE = ["xds.model"]


@pytest.mark.parametrize(
    "line",
    [
        "_seen: dict[str, int] = {}",
        "_seen = []",
        "_seen = set()",
        "_seen = set[str]()",
        "_seen = defaultdict(list)",
        "_seen = count(1)",
        "def put(one):\n    global _seen\n    _seen = one",
    ],
)
def test_state_of_the_process_is_found(make: MakeRepository, line: str) -> None:
    repository = make({"xds/model/a.py": f"{line}\n", "xds/server/a.py": f"{line}\n", "tests/a.py": f"{line}\n"})
    assert [(each.path, each.subject) for each in shared_state(repository, PURE, {})] == [("xds/model/a.py", "_seen")]
    assert not list(shared_state(repository, PURE, {"_seen": "why"}))
    assert list(shared_state(repository, PURE, {"_seen": ""}))


@pytest.mark.parametrize(
    "line",
    [
        "NONE: Mapping[str, int] = {}",
        "TABLE = {'a': 1}",
        "NAMES = frozenset()",
        "KINDS = dict(a=1)",
        "def make():\n    found = []\n    return found",
        "class Seen:\n    'Of one server.'\n    def __init__(self):\n        self.seen = {}",
    ],
)
def test_constants_and_objects_are_no_state_of_the_process(make: MakeRepository, line: str) -> None:
    assert not list(shared_state(make({"xds/model/a.py": f"{line}\n"}), PURE, {}))
