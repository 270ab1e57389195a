"""PgBouncer in session mode, in front of a PostgreSQL server of the tests. It refuses to run as root, too.

The program is that of Debian's package, which is installed where it is missing (as root).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests.support.postgres import USER, PostgresServer, install
from tests.support.process import LOOPBACK, dying_with_us, free_port, wait_until

_SETTINGS = """
[databases]
* = host={host} port={database_port}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = session
"""


class Pooler:
    """A pooler of ``database``."""

    def __init__(self, database: PostgresServer) -> None:
        if shutil.which("pgbouncer") is None and os.geteuid() == 0:
            install("pgbouncer")
        self.port = free_port()
        self._database = database
        self._folder = Path(tempfile.mkdtemp(prefix="xds-pooler-"))
        self._user = USER if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        settings = {"host": LOOPBACK, "database_port": database.port, "port": self.port, "folder": self._folder}
        (self._folder / "users").write_text(f'"{USER}" ""\n')
        (self._folder / "pgbouncer.ini").write_text(_SETTINGS.format(**settings))
        for path in (self._folder, *self._folder.iterdir()) if self._user is not None else ():
            shutil.chown(path, USER)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until the database answers behind it."""
        program = shutil.which("pgbouncer")
        assert program is not None, "PgBouncer is needed: apt-get install pgbouncer"
        with (self._folder / "log").open("ab") as log:
            argv = dying_with_us([program, str(self._folder / "pgbouncer.ini")])
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, user=self._user, cwd=self._folder)
        wait_until(self._answers, "PgBouncer answers", detail=lambda: (self._folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        """``kill -9``: all connections are lost."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def url(self, url: str) -> str:
        """The URL of a database, through this pooler."""
        return url.replace(f":{self._database.port}/", f":{self.port}/")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(self._database.url(USER))).close()
        except psycopg.OperationalError as error:
            raise OSError(str(error)) from error
        return True
