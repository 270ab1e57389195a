"""Consul's compiler as a child process: requests in, answers out."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.peers.child import PeerError
from bench.peers.go_program import GoProgram, build

SOURCES = Path(__file__).resolve().parent
CONSUL_1_14 = GoProgram("consul-1.14.11", SOURCES)
# The last line of releases whose chains have no partitions.
CONSUL_1_10 = GoProgram("consul-1.10.12", SOURCES, "v1_10.mod", "v1_10")


def answers(program: GoProgram, questions: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Consul's answer to each question, in order. Raises ``PeerError`` as ``build`` does, and where it breaks off."""
    argv = [str(build(program))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asking = threading.Thread(target=_ask, args=(process.stdin, questions), daemon=True)
        asking.start()
        for line in process.stdout:
            yield json.loads(line)
        asking.join()
    if process.returncode:
        raise PeerError(f"{program.name} ended with {process.returncode}")


def _ask(pipe: Any, questions: Iterable[dict[str, Any]]) -> None:
    with pipe:
        for question in questions:
            pipe.write(json.dumps(question) + "\n")
            pipe.flush()
