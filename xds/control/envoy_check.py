"""Ask a real Envoy what it has against resources: ``envoy --mode validate`` on a bootstrap made of them.

It speaks for its own version, knows nothing of the proxies' own bootstraps and opens the files that resources name.
Envoy stops at the first fault and seldom says where it is, so the resources are halved until single ones remain.

What Envoy has against a configuration, in few words.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from xds.codec.findings import resource_label
from xds.control.probe_config import (
    PREFIX,
    ProbeContext,
    ProbedResource,
    bootstrap,
    probe_context,
    probed_resources,
)
from xds.model.errors import ERROR, WARNING, Violation
from xds.model.resource import Resource
from xds.model.resource_type import SECRET

TIMEOUT_S = 30.0
RUNS_LIMIT = 60
FINDINGS_LIMIT = 20
_OUTPUT_BYTES = 16 * 1024
_FLAGS = ("--mode", "validate", "-l", "critical", "--log-format", "%v")
# A set that is known to be incomplete: who refers to what is checked elsewhere, and the proxies may have it.
_ELSEWHERE = ("unknown cluster", "no ads configured", "unknown static secret", "environment variable")

# Each run is a process at full load; more callers wait for their turn.
_RUNNING = ThreadPoolExecutor(2, thread_name_prefix="deep-check")


async def deep_check(resources: Sequence[Resource], envoy: Path, timeout_s: float = TIMEOUT_S) -> list[Violation]:
    """What the Envoy binary ``envoy`` refuses, as errors; what could not be looked at, as warnings.

    Takes at most ``timeout_s`` seconds and ``RUNS_LIMIT`` runs; what is left then is told. Raises ``OSError`` where the
    binary cannot be started.
    """
    return await asyncio.get_running_loop().run_in_executor(_RUNNING, check_with_envoy, resources, envoy, timeout_s)


def check_with_envoy(resources: Sequence[Resource], envoy: Path, timeout_s: float = TIMEOUT_S) -> list[Violation]:
    """As ``deep_check``, in the caller's thread."""
    with TemporaryDirectory(prefix="xds-check-") as directory:
        search = _Search(envoy, Path(directory), time.monotonic() + timeout_s)
        try:
            search.all(resources)
        except _ExhaustedError as error:
            search.found.append(
                Violation("unchecked", f"not all resources were shown to Envoy: {error}", severity=WARNING)
            )
        return sorted(search.found, key=lambda found: (found.severity, found.index))


class _ExhaustedError(Exception):
    """No more time, runs or findings."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a run did not end well: Envoy refused (``error``), or could not tell (``warning``)."""

    detail: str
    severity: str = ERROR


@dataclass(slots=True)
class _Search:
    envoy: Path
    directory: Path
    ends_at: float
    found: list[Violation] = field(default_factory=list)
    runs: int = 0

    def all(self, resources: Sequence[Resource]) -> None:
        around = probe_context(resources)
        members = self._shown(resources, around)
        fault = self._run(members, around)
        if fault is None:
            return
        # Secrets first: those who use a bad one would be refused for it.
        secrets = [unit for unit in members if unit.resource.type_url == SECRET]
        self._within(secrets, around, self._run(secrets, around))
        bad = frozenset(found.index for found in self.found if found.severity == ERROR)
        around = probe_context(resources, bad) if bad else around
        others = [
            unit for unit in probed_resources(resources, around) if unit.body and unit.resource.type_url != SECRET
        ]
        self._within(others, around, self._run(others, around) if secrets else fault)

    def _shown(self, resources: Sequence[Resource], around: ProbeContext) -> list[ProbedResource]:
        shown = []
        for unit in probed_resources(resources, around):
            if unit.body:
                shown.append(unit)
            else:
                self._note(unit, _Fault("holds what cannot be shown as JSON; Envoy was not asked", WARNING))
        return shown

    def _within(self, members: Sequence[ProbedResource], around: ProbeContext, fault: _Fault | None) -> None:
        """Find who of ``members`` is at fault, knowing how a run of all of them ended."""
        if fault is None:
            return
        if len(members) == 1:
            self._note(members[0], fault)
            return
        half = len(members) // 2
        halves = members[:half], members[half:]
        faults = [self._run(one, around) for one in halves]
        if not any(faults):
            self._note(None, fault)  # each is fine by itself: the fault is between them
        for one, each in zip(halves, faults, strict=True):
            self._within(one, around, each)

    def _note(self, unit: ProbedResource | None, fault: _Fault) -> None:
        if len(self.found) >= FINDINGS_LIMIT:
            raise _ExhaustedError(f"{FINDINGS_LIMIT} findings are enough")
        label = "" if unit is None else resource_label(unit.resource.type_url, unit.resource.name)
        detail, severity = fault.detail.replace(f"{PREFIX}:", ""), fault.severity
        lost = [] if unit is None else [path for path in unit.paths if path in detail and not Path(path).exists()]
        if lost:
            detail, severity = (
                f"names a file that is not on this machine, {lost[0]}; Envoy could not look at it",
                WARNING,
            )
        elif any(words in detail.lower() for words in _ELSEWHERE):
            severity = WARNING
        code = "envoy_refused" if severity == ERROR else "unchecked"
        index = -1 if unit is None else unit.index
        self.found.append(Violation(code, detail, label, severity=severity, index=index))

    def _run(self, members: Sequence[ProbedResource], around: ProbeContext) -> _Fault | None:
        if not members:
            return None
        left_s = self.ends_at - time.monotonic()
        if left_s <= 0 or self.runs >= RUNS_LIMIT:
            raise _ExhaustedError("it took too long" if left_s <= 0 else f"{RUNS_LIMIT} runs are enough")
        self.runs += 1
        path, log = self.directory / "bootstrap.pb", self.directory / "log"
        path.write_bytes(bootstrap(members, around))
        try:
            with log.open("wb") as output:
                code = _validate(self.envoy, path, output.fileno(), left_s)
        except subprocess.TimeoutExpired:
            raise _ExhaustedError("it took too long") from None
        if code == 0:
            return None
        if code < 0:
            return _Fault(f"Envoy crashed (signal {-code}) while it looked at it", WARNING)
        return _Fault(shorten(_ends(log)) or f"Envoy ended with code {code} and said nothing")


def _validate(envoy: Path, bootstrap_file: Path, output: int, timeout_s: float) -> int:
    argv: list[str | Path] = [envoy, *_FLAGS, "-c", bootstrap_file]
    # No environment: a configuration can name variables, and ours hold secrets.
    run = subprocess.run(  # noqa: S603
        argv, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, timeout=timeout_s, check=False
    )
    return run.returncode


def _ends(log: Path) -> str:
    """The start and the end of a log: what stands between is a dump of the message."""
    with log.open("rb") as stream:
        start = stream.read(_OUTPUT_BYTES)
        size = log.stat().st_size
        stream.seek(max(len(start), size - _OUTPUT_BYTES))
        return (start + stream.read(_OUTPUT_BYTES)).decode(errors="replace")


DETAIL_LIMIT = 500

_OPENING = re.compile(r"^.*?error initializing (?:configuration|config) '[^']*': ?", re.DOTALL)
# A whole message as text, put before what is wrong with it; Envoy varies these words on purpose.
_DUMP = re.compile(r"goo\.gle/debug\w+\s.*\n: (?=Proto constraint)", re.DOTALL)
_MARKER = re.compile(r"goo\.gle/debug\w+\s*")
_CONSTRAINT = re.compile(r"Proto constraint validation failed \((.*)\)\s*$", re.DOTALL)
_CAUSE = re.compile(r"^(\w+?)ValidationError\.([\w\[\]]+): (.*)$", re.DOTALL)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def shorten(output: str) -> str:
    """Envoy's complaint without the dump of the message; constraints as ``type: path: what is wrong``."""
    text = _DUMP.sub("", _OPENING.sub("", output.strip(), count=1))
    constraint = _CONSTRAINT.search(text)
    if constraint is not None:
        text = text[: constraint.start()] + _plain(constraint[1])
    text = " ".join(_MARKER.sub("", text).split())
    return text if len(text) <= DETAIL_LIMIT else text[:DETAIL_LIMIT] + "..."


def _plain(chain: str) -> str:
    """``AValidationError.B[0]: embedded ... | caused by BValidationError.C: why`` is ``A: b[0].c: why``."""
    causes = [_CAUSE.match(cause.strip()) for cause in chain.split("| caused by ")]
    known = [cause for cause in causes if cause is not None]
    if len(known) < len(causes) or not known:
        return chain
    path = ".".join(_CAPITAL.sub("_", cause[2]).lower() for cause in known)
    return f"{known[0][1]}: {path}: {known[-1][3]}"
