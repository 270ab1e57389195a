"""``xds backup``, ``restore``, and the commands of ``xds store``.

Written files are readable by their owner only. They appear complete or not at all.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from xds.backup import archive
from xds.backup.archive import CheckedArchive
from xds.backup.backups import copy_store, examine_directory, is_database, rotate_secret
from xds.calls import server
from xds.cli.client import Client, RefusedError, finding_line
from xds.cli.errors import CommandError, Exit, file_errors
from xds.cli.output import Format, counted, say, write_answer
from xds.cli.private_file import private_file
from xds.model.errors import ConflictError, ValidationError
from xds.store.base import StoreError
from xds.store.records import BLOBS, GROUPS, REVISIONS
from xds.store.sqlite.examination import Examination

Json = dict[str, Any]

STDOUT = "-"


def take_backup(client: Client, target: str, *, history: bool, redact: bool) -> None:
    """Write a backup to standard output, or to a file that is verified before it gets its name.

    Raises ``CommandError``.
    """
    call = server.backup(history=history, redact=redact)
    if target == STDOUT:
        if sys.stdout.isatty():
            raise CommandError(Exit.USAGE, "a backup is binary and cannot be written to a terminal: name a file")
        client.download(call, sys.stdout.buffer.write)
        sys.stdout.buffer.flush()
        return
    with private_file(Path(target)) as file:
        client.download(call, file.write)
        checked = _check_archive(file, target)
    say(f"{target}: {_counts_text(checked)}")


def check_backup(source: Path, format: Format | None) -> None:
    """Verify an archive without a server. Raises ``CommandError``."""
    with _open_file(source) as file:
        checked = _check_archive(file, str(source))
    problems = archive.why_not_restorable(checked)
    document = {"archive": str(source), "restorable": not problems, **checked.counts}
    write_answer(format, document, lambda: f"{source}: {_counts_text(checked)}\n")
    for problem in problems:
        say(f"warning: {problem.detail}")


def restore_backup(client: Client, source: Path, options: Json, format: Format | None) -> None:
    """Send a backup to the server for restoring; ``options`` are those of the call. Raises ``CommandError``."""
    with _open_file(source) as file:
        try:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            result = client.upload(server.restore(file, size_bytes, **options))
        except RefusedError as error:
            if error.status != HTTPStatus.PRECONDITION_FAILED:
                raise
            raise RefusedError(error.status, f"{error}; pass --replace when that is meant", error.problem) from None
    done = "restored" if result["restored"] else "can be restored"
    if result.get("watched"):
        when = "are applied again now" if result["restored"] else "will be applied over it"
        say(f"the files of the watched directory {when}: groups {', '.join(result['watched'])}")
    counts = f"{counted(result['groups'], 'group')}, {counted(result['revisions'], 'revision')}"
    write_answer(format, result, lambda: f"{done}: {counts}, as of {result['time']}\n")


def check_store(data_dir: Path, format: Format | None) -> None:
    """Report the integrity of a store on disk; exits 1 if anything is damaged. Raises ``CommandError``."""
    result = _examined(str(data_dir), lambda: examine_directory(data_dir))
    _show_result(result, format)
    if result.findings:
        raise CommandError(Exit.NEGATIVE, "the store is damaged: xds store copy takes what is undamaged")


def make_copy(source: str, target: str, format: Format | None) -> None:
    """Make a store of the undamaged part of another; exits 1 if anything was left out. Raises ``CommandError``."""
    result = _examined(source, lambda: asyncio.run(copy_store(source, target)))
    _show_result(result, format)
    if result.findings:
        raise CommandError(Exit.NEGATIVE, f"{target} has only what is undamaged")


def make_secret(url: str) -> None:
    """Make a new secret for the servers of a database. Raises ``CommandError``."""
    if not is_database(url):
        raise CommandError(
            Exit.USAGE, f"{url}: not the URL of a database; a data directory has one server, and no secret"
        )
    try:
        asyncio.run(rotate_secret(url))
    except StoreError as error:
        raise CommandError(Exit.NEGATIVE, str(error)) from None
    except ValueError as error:  # a wrong URL, or no driver
        raise CommandError(Exit.USAGE, str(error)) from None
    say("the servers take up the new secret within seconds, and refuse the one of before in a minute")


def _examined(source: str, examination: Callable[[], Examination]) -> Examination:
    if not is_database(source) and not Path(source).exists():
        raise CommandError(Exit.USAGE, f"{source}: there is no such directory or file")
    try:
        return examination()
    except (StoreError, ConflictError) as error:
        raise CommandError(Exit.NEGATIVE, str(error)) from None
    except ValidationError as error:  # what the target cannot hold
        raise CommandError(Exit.NEGATIVE, "\n".join(map(str, error.violations))) from None
    except ValueError as error:  # a wrong URL, or no driver
        raise CommandError(Exit.USAGE, str(error)) from None


def _show_result(examination: Examination, format: Format | None) -> None:
    groups = [f"group {name}: {result}" for name, result in examination.groups.items()]
    lines = [*(f"damaged: {finding}" for finding in examination.findings), *groups]
    document = {"sound": not examination.findings, "findings": examination.findings, "groups": examination.groups}
    write_answer(format, document, lambda: "".join(f"{line}\n" for line in lines or ["the store is empty"]))


def _check_archive(file: IO[bytes], name: str) -> CheckedArchive:
    try:
        return archive.check(file)
    except ValidationError as error:
        lines = [
            finding_line({"source": violation.source, "detail": violation.detail}) for violation in error.violations
        ]
        raise CommandError(Exit.INVALID, "\n".join(f"{name}: {line}" for line in lines)) from None


def _counts_text(checked: CheckedArchive) -> str:
    counts = checked.counts
    named = ((GROUPS, "group"), (REVISIONS, "revision"), (BLOBS, "resource"))
    return ", ".join(counted(counts[table.name], noun) for table, noun in named)


def _open_file(source: Path) -> IO[bytes]:
    with file_errors(source):
        return source.open("rb")
