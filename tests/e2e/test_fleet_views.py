"""The API, the command line and each Envoy's own ``/config_dump`` say the same of a fleet, after a random run."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.random_fleet import RandomFleet
from tests.support.server import ServerProcess


@pytest.mark.parametrize("steps_n", [12, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_all_views_agree_after_a_random_run(
    tmp_path: Path, server: ServerProcess, running: ExitStack, steps_n: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown if the test fails
    fleet = RandomFleet(tmp_path, server, running, random.Random(seed))
    fleet.run(steps_n, fleet.differences)
