"""Lets a real Envoy validate resources: ``envoy --mode validate`` with a bootstrap that contains them.

The result is valid for the version of that Envoy. Envoy does not know the proxies' own bootstraps, and it opens the
files that resources name. It stops at the first error and seldom says which resource has the error. So the resources
are halved until the rejected ones are found. Envoy's output is shortened to the error.
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
from xds.envoy.probe_config import (
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
DETAIL_LIMIT = 500
_OUTPUT_BYTES = 16 * 1024
_FLAGS = ("--mode", "validate", "-l", "critical", "--log-format", "%v")
# Errors about references to resources outside the set. Another check covers them, and a proxy may have the resource.
_ELSEWHERE = ("unknown cluster", "no ads configured", "unknown static secret", "environment variable")

# Each run uses a full core, so further callers wait.
_RUNNING = ThreadPoolExecutor(2, thread_name_prefix="deep-check")


async def deep_check(resources: Sequence[Resource], envoy: Path, timeout_s: float = TIMEOUT_S) -> list[Violation]:
    """Errors for resources that the Envoy binary ``envoy`` rejects, warnings for those that it could not check.

    Takes at most ``timeout_s`` seconds and ``RUNS_LIMIT`` runs; a warning says so when a limit is reached. Raises
    ``OSError`` when the binary cannot be started.
    """
    return await asyncio.get_running_loop().run_in_executor(_RUNNING, check_with_envoy, resources, envoy, timeout_s)


def check_with_envoy(resources: Sequence[Resource], envoy: Path, timeout_s: float = TIMEOUT_S) -> list[Violation]:
    """As ``deep_check``, in the caller's thread."""
    with TemporaryDirectory(prefix="xds-check-") as directory:
        search = _Search(envoy, Path(directory), time.monotonic() + timeout_s)
        try:
            search.all(resources)
        except _ExhaustedError as error:
            search.findings.append(
                Violation("unchecked", f"not all resources were checked by Envoy: {error}", severity=WARNING)
            )
        return sorted(search.findings, key=lambda one: (one.severity, one.index))


class _ExhaustedError(Exception):
    """A limit of time, runs or findings is reached."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """A failed run: Envoy rejected the bootstrap (``error``), or could not check it (``warning``)."""

    detail: str
    severity: str = ERROR


@dataclass(slots=True)
class _Search:
    envoy: Path
    directory: Path
    ends_at: float
    findings: list[Violation] = field(default_factory=list)
    runs: int = 0

    def all(self, resources: Sequence[Resource]) -> None:
        """Check all resources and collect ``findings``."""
        context = probe_context(resources)
        members = self._shown(resources, context)
        fault = self._run(members, context)
        if fault is None:
            return
        # Secrets first: otherwise the users of a secret that is bad, or not to be read here, would be rejected for it.
        secrets = [unit for unit in members if unit.resource.type_url == SECRET]
        self._within(secrets, context, self._run(secrets, context))
        bad = frozenset(one.index for one in self.findings if one.index in {unit.index for unit in secrets})
        context = probe_context(resources, bad) if bad else context
        others = [
            unit for unit in probed_resources(resources, context) if unit.body and unit.resource.type_url != SECRET
        ]
        self._within(others, context, self._run(others, context) if secrets else fault)

    def _shown(self, resources: Sequence[Resource], context: ProbeContext) -> list[ProbedResource]:
        shown = []
        for unit in probed_resources(resources, context):
            if unit.body:
                shown.append(unit)
            else:
                self._note(unit, _Fault("contains values without a JSON form; Envoy was not asked", WARNING))
        return shown

    def _within(self, members: Sequence[ProbedResource], context: ProbeContext, fault: _Fault | None) -> None:
        """Find the rejected members. ``fault`` is the outcome of a run with all of them."""
        if fault is None:
            return
        if len(members) == 1:
            self._note(members[0], fault)
            return
        half = len(members) // 2
        halves = members[:half], members[half:]
        faults = [self._run(one, context) for one in halves]
        if not any(faults):
            self._note(None, fault)  # each half is valid alone: a resource of one clashes with one of the other
        for one, each in zip(halves, faults, strict=True):
            self._within(one, context, each)

    def _note(self, unit: ProbedResource | None, fault: _Fault) -> None:
        if len(self.findings) >= FINDINGS_LIMIT:
            raise _ExhaustedError(f"the limit of {FINDINGS_LIMIT} findings is reached")
        label = "" if unit is None else resource_label(unit.resource.type_url, unit.resource.name)
        detail, severity = fault.detail.replace(f"{PREFIX}:", ""), fault.severity
        absent = [] if unit is None else [path for path in unit.paths if path in detail and not Path(path).exists()]
        hint = ""
        if absent:
            hint = "it is read where Envoy runs; to check it here, make it in this folder first"
            detail, severity = (
                f"names a file that is not on this machine, {absent[0]}; Envoy could not check it",
                WARNING,
            )
        elif any(words in detail.lower() for words in _ELSEWHERE):
            severity = WARNING
        code = "envoy_refused" if severity == ERROR else "unchecked"
        index = -1 if unit is None else unit.index
        self.findings.append(Violation(code, detail, label, severity=severity, index=index, hint=hint))

    def _run(self, members: Sequence[ProbedResource], context: ProbeContext) -> _Fault | None:
        if not members:
            return None
        left_s = self.ends_at - time.monotonic()
        if left_s <= 0 or self.runs >= RUNS_LIMIT:
            raise _ExhaustedError("it took too long" if left_s <= 0 else f"the limit of {RUNS_LIMIT} runs is reached")
        self.runs += 1
        path, log = self.directory / "bootstrap.pb", self.directory / "log"
        path.write_bytes(bootstrap(members, context))
        try:
            with log.open("wb") as output:
                code = _validate(self.envoy, path, output.fileno(), left_s)
        except subprocess.TimeoutExpired:
            raise _ExhaustedError("it took too long") from None
        if code == 0:
            return None
        if code < 0:
            return _Fault(f"Envoy crashed (signal {-code}) while it checked the resource", WARNING)
        return _Fault(shorten(_start_and_end(log)) or f"Envoy exited with code {code} and no message")


def _validate(envoy: Path, bootstrap_file: Path, output: int, timeout_s: float) -> int:
    argv: list[str | Path] = [envoy, *_FLAGS, "-c", bootstrap_file]
    # No environment: a configuration can read variables, and those of the server contain secrets.
    run = subprocess.run(  # noqa: S603
        argv, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, timeout=timeout_s, check=False
    )
    return run.returncode


def _start_and_end(log: Path) -> str:
    """The start and the end of a log, without the dump of the message between them."""
    with log.open("rb") as stream:
        start = stream.read(_OUTPUT_BYTES)
        size = log.stat().st_size
        stream.seek(max(len(start), size - _OUTPUT_BYTES))
        return (start + stream.read(_OUTPUT_BYTES)).decode(errors="replace")


_OPENING = re.compile(r"^.*?error initializing (?:configuration|config) '[^']*': ?", re.DOTALL)
# The dump of a message before its error. Envoy varies the marker on purpose.
_DUMP = re.compile(r"goo\.gle/debug\w+\s.*\n: (?=Proto constraint)", re.DOTALL)
_MARKER = re.compile(r"goo\.gle/debug\w+\s*")
_CONSTRAINT = re.compile(r"Proto constraint validation failed \((.*)\)\s*$", re.DOTALL)
_CAUSE = re.compile(r"^(\w+?)ValidationError\.([\w\[\]]+): (.*)$", re.DOTALL)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def shorten(output: str) -> str:
    """Envoy's error without the dump of the message. Constraints read ``type: path: error``."""
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
