"""Children that end with their parent, also when it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def ending_with_us() -> Callable[[], None] | None:
    """What a child runs before its program, so that it gets SIGTERM when this process ends.

    None where the system is not Linux.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended before
            os.kill(os.getpid(), signal.SIGTERM)

    return end_with_parent
