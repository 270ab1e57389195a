"""The wheel xds-protos, which has a package ``xds`` of its own, in the same environment (docs/python.md).

grpcio-csds and grpcio-admin depend on it, and programs that embed the server often use its messages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.process import REPOSITORY

# It fetches a wheel that the project does not depend on, and makes virtual environments.
pytestmark = pytest.mark.soak
XDS_PROTOS = "xds-protos==1.85.0"
INSTALL_TIMEOUT_S = 300.0
# Messages of both kinds of packages, pushed by both doors, and the packages of the other wheel.
PROGRAM = """
import asyncio
from xds.client import AsyncClient
from xds.embed import Server
from envoy.config.cluster.v3 import cluster_pb2
from envoy_data_plane.envoy.config.cluster import v3 as cluster
from xds.core.v3 import context_params_pb2
from xds.type.matcher.v3 import matcher_pb2

async def main():
    async with Server(grpc="127.0.0.1:0", http="127.0.0.1:0") as server:
        both = [cluster_pb2.Cluster(name="a"), cluster.Cluster(name="b")]
        await server.apply("g", both)
        async with AsyncClient(f"http://127.0.0.1:{server.http_address[1]}") as client:
            assert not (await client.apply("g", both)).changed
            found = await client.snapshot("g")
            assert [each["name"] for each in found.resources] == ["a", "b"], found
    assert context_params_pb2.ContextParams(params={"k": "v"}).params["k"] == "v"

asyncio.run(main())
print("works")
"""


_CACHES = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def protos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the other wheel."""
    folder = tmp_path_factory.mktemp("protos")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), XDS_PROTOS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    assert run.returncode == 0, run.stderr
    return folder


class Environment:
    """A virtual environment with the dependencies of this one as links, without the package in development."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if entry.suffix != ".pth" and not entry.name.startswith(("xds", "_editable", "__editable__")):
                (self.packages / entry.name).symlink_to(entry)

    def install(self, content: Path) -> None:
        """As pip installs a wheel: files that are there already are overwritten."""
        for entry in content.iterdir():
            link = self.packages / entry.name
            if link.is_symlink():  # of a package that both have, such as google: one directory, as in site-packages
                target = link.readlink()
                link.unlink()
                shutil.copytree(target, link, ignore=_CACHES)
            shutil.copytree(entry, link, dirs_exist_ok=True, ignore=_CACHES)

    def run(self, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(self.python), *arguments]
        environment = {"PATH": "/usr/bin:/bin", **({"PYTHONPATH": path} if path else {})}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env=environment, cwd=self.packages.parent, check=False
        )


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel of the server has."""
    folder = tmp_path_factory.mktemp("ours")
    shutil.copytree(REPOSITORY / "xds", folder / "xds", ignore=_CACHES)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


def works(environment: Environment, path: str = "") -> None:
    ran = environment.run("-c", PROGRAM, path=path)
    assert ran.stdout == "works\n", ran.stderr


@pytest.mark.parametrize("last", ["xds-server", "xds-protos"])
def test_both_work_in_whatever_order_they_are_installed(
    environment: Environment, ours: Path, protos: Path, last: str
) -> None:
    for content in (ours, protos) if last == "xds-protos" else (protos, ours):
        environment.install(content)
    works(environment)
    ran = environment.run("-m", "xds.cli.main", "--version")
    assert ran.stdout.startswith("xds-server "), ran.stderr
    shortcut = environment.run("-c", "import xds; print(xds.Server.__module__)")
    assert (shortcut.stdout == "xds.embed.server\n") is (last == "xds-server")


def test_the_server_works_after_the_other_is_removed(environment: Environment, ours: Path, protos: Path) -> None:
    """pip takes ``xds/__init__.py`` away with the wheel that it believes owns it."""
    environment.install(ours)
    (environment.packages / "xds" / "__init__.py").unlink()
    ran = environment.run("-c", "from xds.embed import Server; from xds.client import Client; print('works')")
    assert ran.stdout == "works\n", ran.stderr
    assert environment.run("-m", "xds.cli.main", "--version").returncode == 0


def test_both_work_from_two_directories_if_the_server_comes_first(
    environment: Environment, ours: Path, protos: Path
) -> None:
    """The client library only: the other wheel hides packages of FastAPI's from there (opentelemetry)."""
    code = "import xds.client, xds.core.v3.context_params_pb2, xds; print(xds.Client.__module__)"
    ran = environment.run("-c", code, path=f"{ours}:{protos}")
    assert ran.stdout == "xds.client.blocking\n", ran.stderr
    ran = environment.run("-c", "import xds.embed", path=f"{protos}:{ours}")
    assert "No module named 'xds.embed'" in ran.stderr
