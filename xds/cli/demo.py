"""``xds demo``: a server configures a real Envoy, and a request goes through it.

All processes listen on the loopback. The server keeps its state in memory, everything else is in a private folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx

from xds.cli.children import ChildError, Children, EndedBySignalError
from xds.cli.envoy_binary import AUTO, BRINGS_ENVOY, envoy_binary
from xds.cli.errors import CommandError, Exit
from xds.cli.output import say, write
from xds.cli.private_folder import private_folder
from xds.cli.templates import Template, template_text
from xds.settings.sections import LOOPBACK

FOLDER = "xds-demo"
GROUP = "hello"
NODE = "hello-envoy"
GREETING = "Hello from the upstream! Your request went through Envoy.\n"
UPSTREAM_PORT, LISTENER_PORT = "18001", "10000"  # in the template
FETCH_TIMEOUT_S = 2.0
# What would change the server of the demo, or lead its commands elsewhere.
_FOREIGN_PREFIX = "XDS_"
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy")


def run_demo(*, is_once: bool) -> None:
    """Run the demo until a signal comes, or with ``is_once`` until a request has gone through Envoy.

    Raises ``CommandError``.
    """
    try:
        with private_folder(FOLDER) as folder, Children(folder, _environment(os.environ, folder)) as children:
            demo = Demo(folder, children, _envoy())
            try:
                demo.run()
                if not is_once:
                    write(demo.goodbye())
                    children.wait_for_signal()
            except EndedBySignalError:
                say("\nending ...")
                if is_once:
                    raise CommandError(Exit.INTERRUPTED, "") from None
                return
    except ChildError as error:
        raise CommandError(Exit.NEGATIVE, str(error)) from None
    if demo.envoy is None:
        raise CommandError(Exit.NOT_FOUND, f"no request was sent, for want of an Envoy: {BRINGS_ENVOY}")


class Demo:
    """The steps of the demo. Without an ``envoy`` no request is sent.

    The server and the upstream choose their ports and log them: no other program can be taken for one of them.
    """

    def __init__(self, folder: Path, children: Children, envoy: Path | None) -> None:
        self.envoy = envoy
        self._children = children
        self._folder = folder
        self._snapshot = folder / "hello.yaml"
        self._listener_port, self._admin_port = free_ports(2)
        self._api = ""

    def run(self) -> None:
        """Run all steps in order. Raises ``ChildError`` and ``EndedBySignalError``."""
        upstream_port = self._start_upstream()
        grpc_port = self._start_server()
        if self.envoy is None:
            write(f"- there is no Envoy here, so no request is sent; this brings one: {BRINGS_ENVOY}\n")
        else:
            self._start_envoy(self.envoy, grpc_port)
        self._push(upstream_port)
        if self.envoy is not None:
            self._send_request()

    def _start_upstream(self) -> int:
        """A web server with one page, ``/hello``; its port."""
        pages = self._folder / "upstream"
        pages.mkdir()
        (pages / "hello").write_text(GREETING)
        served = ["-m", "http.server", "0", "--bind", LOOPBACK, "--directory", str(pages)]
        self._children.start("upstream", [sys.executable, "-P", "-u", *served])
        return int(self._logged("upstream", r" port (\d+) ", "the upstream listens")[1])

    def _start_server(self) -> int:
        """Our server; its gRPC port."""
        any_ports = ["--grpc", f"{LOOPBACK}:0", "--http", f"{LOOPBACK}:0"]
        self._children.start("server", _xds("serve", "--store", "memory", *any_ports))
        line = self._logged("server", r"^\{.*server\.ready.*\}$", "the server is ready")[0]
        ports = json.loads(line)
        self._api = f"http://{LOOPBACK}:{ports['http_port']}"
        return int(ports["grpc_port"])

    def _start_envoy(self, envoy: Path, grpc_port: int) -> None:
        """An Envoy that knows the address of the server and nothing else."""
        node = ["--node-id", NODE, "--cluster", GROUP, "--xds-addr", f"{LOOPBACK}:{grpc_port}"]
        options = [*node, "--admin-port", str(self._admin_port), "--envoy", str(envoy)]
        self._children.start("Envoy", _xds("envoy", *options, "--", "-l", "warning", "--concurrency", "1"))
        self._reach(f"{self._api}/api/v1/nodes/{NODE}", "Envoy is connected")

    def _push(self, upstream_port: int) -> None:
        """Push the snapshot with the ports of this run, and wait until Envoy has it."""
        text = template_text(Template.HELLO)
        for written, port in ((UPSTREAM_PORT, upstream_port), (LISTENER_PORT, self._listener_port)):
            text = text.replace(written, str(port))
        self._snapshot.write_text(text)
        waiting = [] if self.envoy is None else ["--wait"]
        self._show("apply", "-g", GROUP, "-f", str(self._snapshot), "-m", "say hello", *waiting)

    def _send_request(self) -> None:
        url = f"http://{LOOPBACK}:{self._listener_port}/hello"
        self._reach(url, "a request goes through Envoy")
        self._show("nodes", "-g", GROUP)
        write(f"\n$ curl {url}\n{_fetch(url)}")

    def goodbye(self) -> str:
        """The page, the logs, and commands to try while it runs."""
        xds, server = _shown_program(), f"--server {self._api}"
        admin = "" if self.envoy is None else f"Envoy's own: http://{LOOPBACK}:{self._admin_port}\n"
        return (
            f"\nPages: {self._api}/ui\n{admin}Logs: {self._folder}\nTry, in another terminal:\n"
            f"  {xds} get snapshot -g {GROUP} {server}\n"
            f"  {xds} explain {NODE} {server}\n"
            f"  {xds} apply -g {GROUP} -f {self._snapshot} --wait {server}     (edit the file before)\n"
            "Ctrl-C ends it.\n"
        )

    def _logged(self, name: str, pattern: str, what: str) -> re.Match[str]:
        """What matches the pattern in the log of a process, once it is there."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self._children.log(name), re.MULTILINE)

        self._children.wait(lambda: found() is not None, what)
        write(f"- {what}\n")
        match = found()
        assert match is not None
        return match

    def _reach(self, url: str, what: str) -> None:
        self._children.wait(lambda: _fetch(url) != "", what)
        write(f"- {what}\n")

    def _show(self, *arguments: str) -> None:
        """Run our command line, and show what it writes."""
        write(f"\n$ xds {shlex.join(arguments)}\n")
        write(self._children.run(f"xds-{arguments[0]}", _xds(*arguments, server=self._api)))


def free_ports(count: int) -> list[int]:
    """Different ports that are free on the loopback address."""
    with ExitStack() as probing:
        probes = [probing.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def _environment(ours: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of all processes: even what one of them leaves when it is killed, goes with the folder."""
    kept = {
        name: value
        for name, value in ours.items()
        if not name.startswith(_FOREIGN_PREFIX) and name.lower() not in _PROXY_VARIABLES
    }
    return {**kept, "XDS_LOGS__FORMAT": "json", "TMPDIR": str(folder)}


def _envoy() -> Path | None:
    try:
        return envoy_binary(AUTO)
    except CommandError:
        return None


def _xds(*arguments: str, server: str = "") -> list[str]:
    # -P: what the working directory has is not imported.
    return [sys.executable, "-P", "-m", "xds", *arguments, *(["--server", server] if server else [])]


def _shown_program() -> str:
    """How to run this command from here: by its name, if that is on the path."""
    ours, found = Path(sys.executable).with_name("xds"), shutil.which("xds")
    if not ours.exists():
        return f"{sys.executable} -m xds"
    return "xds" if found is not None and ours.samefile(found) else os.path.relpath(ours)


def _fetch(url: str) -> str:
    """The body of a page; empty while there is none."""
    try:
        answer = httpx.get(url, timeout=FETCH_TIMEOUT_S, trust_env=False)
    except httpx.TransportError:
        return ""
    return answer.text if answer.is_success else ""
