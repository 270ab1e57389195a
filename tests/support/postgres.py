"""A PostgreSQL server of the tests, on the loopback, under a user of its own: it refuses to run as root.

The programs are those of Debian's package, which is installed where they are missing (as root), or those in the
folder ``XDS_TEST_POSTGRES``.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests.support.pki import Certificate
from tests.support.process import LOOPBACK, dying_with_us, free_port, wait_until

USER = "postgres"  # of the package, and of the database
INSTALL_TIMEOUT_S = 600.0
# Nothing of the machine's start is wanted: no cluster, no service.
_PACKAGES = ("postgresql", "postgresql-client")


def programs() -> Path:
    """The folder with ``initdb`` and ``postgres``, of the newest version there is."""
    named = os.environ.get("XDS_TEST_POSTGRES")
    if named:
        return Path(named)
    found = _installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install(*_PACKAGES)
        found = _installed()
    assert found is not None, (
        "PostgreSQL is needed: apt-get install postgresql, or name its programs in XDS_TEST_POSTGRES"
    )
    return found


class PostgresServer:
    """A server with no database of a store. ``settings`` are lines of its configuration.

    It is a standby of ``copy_of``, if that is given. With a ``certificate`` it speaks TLS.
    """

    def __init__(
        self,
        settings: Sequence[str] = (),
        copy_of: PostgresServer | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="xds-postgres-"))
        self.port = free_port()
        self._data = self.folder / "data"
        self._programs = programs()
        self._user = USER if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        if copy_of is None:
            self._run("initdb", "--pgdata", str(self._data), "--username", USER, "--encoding", "UTF8", "--no-sync")
        else:
            source = f"host={LOOPBACK} port={copy_of.port} user={USER}"
            self._run("pg_basebackup", "--pgdata", str(self._data), "--dbname", source, "--write-recovery-conf")
        base = (f"port = {self.port}", f"listen_addresses = '{LOOPBACK}'", "unix_socket_directories = ''")
        if certificate is not None:
            settings = (*settings, "ssl = on", *self._keep(certificate))
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{line}\n" for line in (*base, "shared_buffers = 32MB", *settings))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_us([str(self._programs / "postgres"), "-D", str(self._data)]),
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.folder,
                process_group=0,
            )
        wait_until(self._answers, "PostgreSQL answers", detail=lambda: (self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        """``kill -9`` of all its processes."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP)  # it makes no process that would be left, and hold its memory
            for pid in (process.pid, *_children(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def freeze(self) -> None:
        """Stop all its processes: it keeps its connections, and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "PostgreSQL was not started"
        for pid in (self._process.pid, *_children(self._process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-D", str(self._data))

    def url(self, database: str = "xds", user: str = USER) -> str:
        """The URL of a database."""
        return f"postgresql://{user}@{LOOPBACK}:{self.port}/{database}"

    def make_database(self, options: str = "") -> str:
        """The URL of a new database."""
        name = f"xds_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def execute(self, statement: str, database: str = USER) -> list[tuple[object, ...]]:
        """Run a statement as the owner; the rows that it returns."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _keep(self, certificate: Certificate) -> Iterator[str]:
        """Write a certificate with its key, for nobody else to read; the settings."""
        for setting, text in (("ssl_cert_file", certificate.pem), ("ssl_key_file", certificate.key_pem)):
            path = self.folder / setting
            path.touch(0o600)
            path.write_text(text)
            if self._user is not None:
                shutil.chown(path, self._user)
            yield f"{setting} = '{path}'"

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError as error:
            assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            raise OSError(str(error)) from error
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            user=self._user,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class Link:
    """Forwards connections to a server. ``lose_commit`` cuts the next one that commits a write.

    With ``committed`` the server gets the commit, and its answer is lost; else the commit itself is.
    """

    def __init__(self, port: int) -> None:
        self.lost = 0
        self._port = port
        self._lose: bool | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._forward, LOOPBACK, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    def url(self, url: str) -> str:
        """A URL of the server, through this link."""
        assert self._server is not None
        return url.replace(f":{self._port}/", f":{self._server.sockets[0].getsockname()[1]}/")

    def lose_commit(self, *, committed: bool) -> None:
        """Cut the connection of the next write when it commits."""
        self._lose = committed

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(LOOPBACK, self._port)
        back = asyncio.create_task(_pump(answers, writer))
        is_writing = False
        while data := await reader.read(1 << 16):
            is_writing = is_writing or b"INSERT INTO writer" in data
            if is_writing and self._lose is not None and b"COMMIT\0" in data:
                committed, self._lose = self._lose, None
                back.cancel()
                if committed:
                    requests.write(data)
                    await asyncio.gather(back, return_exceptions=True)
                    await answers.read(1)
                self.lost += 1
                break
            if b"COMMIT\0" in data:
                is_writing = False
            requests.write(data)
        for end in (writer, requests):
            end.close()
        back.cancel()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _installed() -> Path | None:
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(found, key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0), default=None)
    if newest is not None:
        return newest.parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


def install(*packages: str) -> None:
    """Install packages of Debian, as root."""
    for argv in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", *packages]):
        subprocess.run(argv, check=True, timeout=INSTALL_TIMEOUT_S, capture_output=True)
