"""What is excepted is not reported; an exception that nothing needs is."""

from __future__ import annotations

from pathlib import Path

from tests.house.conftest import MakeRepository
from tools.house.__main__ import check

FILES = {
    "xds/one/node.py": "class Gate: 'One.'\n",
    "xds/two/node.py": "class Gate: 'Another.'\n",
    "xds/two/engine.py": "# see docs/gone.md\n",
}


def write(
    path: Path, classes: str = "", modules: str = "", unmended: str = "", state: str = "", products: str = ""
) -> Path:
    """A file of exceptions."""
    path.write_text(
        f"classes = [{classes}]\n[modules]\n{modules}\n[products]\n{products}\n[state]\n{state}\n"
        f"[references]\nforeign = []\nunmended = [{unmended}]\n"
    )
    return path


def test_exceptions_are_not_reported(make: MakeRepository, tmp_path: Path) -> None:
    repository = make(FILES)
    assert len(list(check(repository, write(tmp_path / "none.toml")))) == 3
    assert not list(check(repository, write(tmp_path / "all.toml", '"Gate"', 'node = "why"', '"xds/two/"')))


def test_an_exception_that_nothing_needs_is_reported(make: MakeRepository, tmp_path: Path) -> None:
    exceptions = write(
        tmp_path / "old.toml", '"Gone"', 'gone = "why"', '"xds/gone/"', '_gone = "why"', '"b.py" = "why"'
    )
    subjects = [finding.subject for finding in check(make({"xds/a.py": ""}), exceptions)]
    assert subjects == ["Gone", "gone", "b.py", "_gone", "xds/gone/"]
