"""Settings of the interpreter and the allocator."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from xds.server.process import ChurnDetector, paused_gc, release_memory, tune_gc


def test_tune_gc() -> None:
    thresholds = gc.get_threshold()
    fresh: list[list[int]] = [[] for _ in range(1_000)]
    gc.collect()
    frozen = gc.get_freeze_count()
    try:
        tune_gc()
        assert gc.get_threshold()[0] == 5_000
        assert gc.get_freeze_count() - frozen > len(fresh)
    finally:
        gc.set_threshold(*thresholds)


def test_release_memory_is_harmless() -> None:
    release_memory()
    release_memory()


def test_memory_is_released_while_streams_move_and_once_behind_it() -> None:
    churn = ChurnDetector()
    assert [churn.update(total) for total in (0, 5, 9, 9, 9, 9, 10, 10, 10)] == [
        False, True, True, True, False, False, True, True, False,
    ]  # fmt: skip


def test_a_process_may_open_as_many_files_as_the_system_grants() -> None:
    program = """
import resource
from xds.server.process import raise_file_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
print(raise_file_limit() == hard)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "True"


def test_nothing_is_collected_while_state_is_loaded() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="damaged"), paused_gc():
        assert not gc.isenabled()
        raise ValueError("damaged")
    assert gc.isenabled()
