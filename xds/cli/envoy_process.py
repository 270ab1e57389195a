"""An Envoy as the child of a command: its bootstrap in a private file, signals passed on, its exit code."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from xds.cli.bootstrap import write_bootstrap
from xds.cli.envoy_binary import BRINGS_ENVOY
from xds.cli.errors import CommandError, Exit
from xds.cli.output import Format, say
from xds.cli.parent_death import ending_with_us
from xds.cli.private_folder import private_folder
from xds.envoy.bootstrap import BootstrapOptions, bootstrap

FOLDER = "xds-envoy"
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# A hot restart takes over from an Envoy with the same id. Without that, Envoys on one machine need ids of their own.
_RESTARTING = ("--base-id", "--use-dynamic-base-id", "--restart-epoch", "--disable-hot-restart")
_BY_SIGNAL = 128  # as shells tell that a signal ended a program


def run_envoy(envoy: Path, options: BootstrapOptions, flags: Sequence[str]) -> int:
    """Run Envoy to its end; its exit code, with which the command is to end. Raises ``CommandError`` without one."""
    alone = () if any(flag.startswith(_RESTARTING) for flag in flags) else ("--disable-hot-restart",)
    with private_folder(FOLDER) as folder:
        file = folder / "bootstrap.json"
        write_bootstrap(bootstrap(options), str(file), Format.JSON)
        say(f"{envoy} asks {options.host}:{options.port} for the configuration of node {options.node_id or 'ID'}")
        return _run([str(envoy), "-c", str(file), *alone, *flags])


def _run(command: Sequence[str]) -> int:
    early: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: object) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for passed_on in PASSED_ON:
        signal.signal(passed_on, pass_on)
    try:
        # In its own process group: Ctrl-C reaches it once, through the command. A second signal ends Envoy halfway.
        child = subprocess.Popen(command, process_group=0, preexec_fn=ending_with_us())  # noqa: S603, PLW1509
        for number in early:
            child.send_signal(number)
        code = child.wait()
    except OSError as error:
        raise CommandError(
            Exit.NOT_FOUND, f"{command[0]}: {error.strerror or error}; {BRINGS_ENVOY} installs an Envoy"
        ) from None
    finally:  # what comes later must not change how the command ends
        for passed_on in PASSED_ON:
            signal.signal(passed_on, signal.SIG_IGN)
    return code if code >= 0 else _BY_SIGNAL - code
