"""A small repository to check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.house.source import Repository

MakeRepository = Callable[..., Repository]


@pytest.fixture
def make(tmp_path: Path) -> MakeRepository:
    """Write files, given by their paths, and return the repository of them."""

    def make(files: dict[str, str]) -> Repository:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return Repository(tmp_path)

    return make
