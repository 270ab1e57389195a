"""`make demo` ends what it started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from tests.support.process import REPOSITORY, wait_until

# The demo with one process that takes a moment to end, in the place of all others.
PROGRAM = """
import sys
sys.path.insert(0, "examples/hello")
import demo
SLOW = "import signal, time; signal.signal(15, lambda *_: (time.sleep(1), exit())); print('up', flush=True); "
SLOW += "time.sleep(60)"
def run(self):
    process = self.start("slow", [sys.executable, "-c", SLOW])
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
        time.sleep(0.1)
        demo.send_signal(signal.SIGINT)
        assert "Traceback" not in demo.stdout.read()
        assert demo.wait(10) == 0
    assert subprocess.run(["ps", "-p", str(child)], capture_output=True, check=False).returncode == 1
