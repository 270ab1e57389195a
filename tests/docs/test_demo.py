"""`make demo` ends what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support.process import REPOSITORY, wait_until

# A process that takes a second to end when it is told to.
SLOW = """
import signal, sys, time
def end(*_):
    time.sleep(1)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(60)
"""
# The demo with that process in the place of all others.
PROGRAM = f"""
import sys
sys.path.insert(0, "examples/hello")
import demo
def run(self):
    process = self.start("slow", [sys.executable, "-c", {SLOW!r}])
    self.wait(process, lambda: "up" in self.log("slow").read_text(), "it runs")
    print(process.pid, flush=True)
demo.Demo.run = run
sys.exit(demo.main())
"""


def test_a_second_ctrl_c_leaves_no_process_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "- it runs\n"
        child = int(demo.stdout.readline())
        demo.send_signal(signal.SIGINT)
        wait_until(lambda: demo.stdout is not None and "ending" in demo.stdout.readline(), "it ends")
        demo.send_signal(signal.SIGINT)
        assert "Traceback" not in demo.stdout.read()
        assert demo.wait(10) == 0
    wait_until(lambda: not _is_there(child), "its process is gone", 5.0)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
