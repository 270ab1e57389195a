"""What commands do only on a terminal: ask, color and redraw."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from tests.cli.conftest import Remote
from tests.support.process import DEADLINE_S, LOOPBACK, REPOSITORY, child_environment, wait_until
from tests.support.resources import static_cluster


class Terminal:
    """A command whose three streams are a terminal."""

    def __init__(self, remote: Remote, *arguments: str) -> None:
        self.text = ""
        self._main, worker = pty.openpty()
        environment = child_environment({"XDS_ADDR": f"http://{LOOPBACK}:{remote.server.http_port}", "TERM": "xterm"})
        environment.pop("NO_COLOR", None)
        command = [sys.executable, "-m", "xds.cli.main", *arguments]
        self.process = subprocess.Popen(
            command, stdin=worker, stdout=worker, stderr=worker, env=environment, cwd=REPOSITORY
        )
        os.close(worker)
        self._reader = Thread(target=self._read)
        self._reader.start()

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def shows(self, text: str) -> None:
        wait_until(lambda: text in self.text, f"{text!r} on the terminal", detail=lambda: self.text)

    def code(self) -> int:
        """Wait for its end."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join()
        return code

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.code()
        os.close(self._main)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._main, 4096)
            except OSError:  # the other side is closed
                return
            if not data:
                return
            self.text += data.decode("utf-8", "replace")


@contextmanager
def terminal(remote: Remote, *arguments: str) -> Iterator[Terminal]:
    made = Terminal(remote, *arguments)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_delete_asks_first(remote: Remote, answer: str, code: int) -> None:
    remote.server.push("asked", [static_cluster("a", 80)])
    with terminal(remote, "delete", "asked") as asked:
        asked.shows("delete group asked? [y/N] ")
        asked.type(f"{answer}\n")
        assert asked.code() == code
    assert ("asked" in remote.xds("get", "groups", "-o", "name").out.split()) is (code != 0)


def test_delete_does_not_ask_with_the_option_yes(remote: Remote) -> None:
    remote.server.push("unasked", [static_cluster("a", 80)])
    with terminal(remote, "delete", "unasked", "--yes") as unasked:
        assert unasked.code() == 0
    assert "[y/N]" not in unasked.text


def test_tables_are_colored_and_redrawn(remote: Remote) -> None:
    remote.server.push("drawn", [static_cluster("a", 80)])
    with terminal(remote, "get", "groups", "-w", "--columns", "group,revision") as drawn:
        drawn.shows("drawn")
        assert drawn.text.startswith("\x1b[H\x1b[2J\x1b[1mGROUP")
        remote.server.push("drawn", [static_cluster("a", 81)])
        wait_until(lambda: drawn.text.count("\x1b[2J") > 1, "the second drawing")
        drawn.process.send_signal(signal.SIGINT)
        assert drawn.code() == 130
