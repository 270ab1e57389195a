"""Files that are read again and again: a regular file of a bounded size, within its directory, whatever its name is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from xds.codec.regular_file import read_regular

LIMIT = 1_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "watched"
    made.mkdir()
    (tmp_path / "secret").write_text("root:x:0")
    (made / "file").write_text("content")
    return made


def test_a_file_and_its_state(directory: Path) -> None:
    read = read_regular(directory / "file", LIMIT, directory)
    assert read.data == b"content"
    assert read.state.st_size == 7


def test_the_links_of_a_mounted_config_map_are_followed(directory: Path) -> None:
    (directory / "..2026_11_28").mkdir()
    (directory / "..2026_11_28" / "web.yaml").write_text("content")
    (directory / "..data").symlink_to("..2026_11_28")
    (directory / "web.yaml").symlink_to("..data/web.yaml")
    mounted = directory.parent / "mounted"
    mounted.symlink_to(directory)
    for root in (directory, mounted):
        assert read_regular(root / "web.yaml", LIMIT, root).data == b"content"


def _link_out(directory: Path) -> Path:
    (directory / "out").symlink_to("../secret")
    return directory / "out"


def _link_out_by_a_directory(directory: Path) -> Path:
    (directory / "up").symlink_to("..")
    return directory / "up" / "secret"


def _link_to_the_directory(directory: Path) -> Path:
    (directory / "self").symlink_to(".")
    return directory / "self"


def _pipe(directory: Path) -> Path:
    os.mkfifo(directory / "pipe")
    return directory / "pipe"


def _socket(directory: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "socket"))
    return directory / "socket"


def _subdirectory(directory: Path) -> Path:
    (directory / "below.yaml").mkdir()
    return directory / "below.yaml"


def _device(directory: Path) -> Path:
    (directory / "zero").symlink_to("/dev/zero")
    return directory / "zero"


def _large(directory: Path) -> Path:
    with (directory / "large").open("wb") as file:
        file.truncate(1 << 40)
    return directory / "large"


def _dangling(directory: Path) -> Path:
    (directory / "dangling").symlink_to("nowhere")
    return directory / "dangling"


def _loop(directory: Path) -> Path:
    (directory / "loop").symlink_to("loop")
    return directory / "loop"


@pytest.mark.parametrize(
    "make",
    [
        *(_link_out, _link_out_by_a_directory, _link_to_the_directory, _pipe, _socket, _subdirectory, _device, _large),
        *(_dangling, _loop),
    ],
)
def test_anything_else_is_refused_at_once(directory: Path, make: object) -> None:
    assert callable(make)
    path = make(directory)
    with pytest.raises(OSError) as refused:
        read_regular(path, LIMIT, directory)
    assert "root:x:0" not in str(refused.value)


@pytest.mark.parametrize("make", [_pipe, _device, _large])
def test_files_without_a_directory_are_regular_too(directory: Path, make: object) -> None:
    assert callable(make)
    with pytest.raises(OSError, match=r"not a regular file|larger"):
        read_regular(make(directory), LIMIT)


def test_a_file_that_grows_while_it_is_read_is_given_up(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one to which a program appends faster than it is read."""
    file, read = directory / "file", os.read

    def read_and_append(descriptor: int, size: int) -> bytes:
        with file.open("a") as growing:
            growing.write("more" * 100)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", read_and_append)
    with pytest.raises(OSError, match="grew"):
        read_regular(file, LIMIT, directory)
