"""The wheel in an environment of its own, used in a project that has a package ``api``, outside of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
import yaml

from tests.support.process import LOOPBACK, REPOSITORY, free_port, wait_until
from tests.support.resources import static_cluster
from xds.cli.templates import Template

TIMEOUT_S = 120.0
_BUILT = ("xds", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "api", "examples", "requirements.run.lock")
_NOT_COPIED = shutil.ignore_patterns("__pycache__")
# What only the wheel may bring.
_OURS = ("xds", "_editable", "__editable__")
PAGES = ("/", "/docs", "/ui/nodes")
# Nothing of ours imports it: a program of the project does so before it imports us.
API = """
import sys
if "xds" in sys.modules:
    raise ImportError("the api of the project was imported by the server")
NAME = "the project"
"""
PROGRAM = """
import asyncio, sys, api
from xds.client import Client
from xds.embed import Server

cluster = {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "type": "STATIC"}
with Client(sys.argv[1]) as client:
    assert client.apply("shop", [cluster]).revision == 1

async def main():
    async with Server(grpc="127.0.0.1:0", http="127.0.0.1:0") as server:
        assert (await server.apply("shop", [cluster])).revision == 1

asyncio.run(main())
print(api.NAME)
"""


class Project:
    """A directory with a package ``api`` on the path, and the environment that has the wheel."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder / "venv", with_pip=False)
        self._programs = folder / "venv" / "bin"
        (packages,) = (folder / "venv").glob("lib/python*/site-packages")
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if entry.suffix != ".pth" and not entry.name.startswith(_OURS):
                (packages / entry.name).symlink_to(entry)
        with ZipFile(wheel) as archive:
            archive.extractall(packages)
        self.directory = folder / "project"
        (self.directory / "api").mkdir(parents=True)
        (self.directory / "api" / "__init__.py").write_text(API)
        self.http_port, self.grpc_port = free_port(), free_port()
        self.url = f"http://{LOOPBACK}:{self.http_port}"
        self._environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.directory), "XDS_ADDR": self.url}

    def command(self, *arguments: str) -> list[str]:
        """The command line, as the script of the wheel starts it."""
        return [str(self._programs / "python"), "-c", "from xds.cli.main import main; main()", *arguments]

    def add_envoy(self) -> None:
        """The program of the extra ``envoy``."""
        (self._programs / "envoy").symlink_to(Path(sys.executable).with_name("envoy"))

    def run(self, command: list[str]) -> str:
        """A command that must succeed; its output."""
        ran = self.ran(command)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def ran(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """A command that has run to its end."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=self.directory,
            env=self._environment,
        )

    def python(self, program: str, *arguments: str) -> str:
        """A program of the project."""
        return self.run([str(self._programs / "python"), "-c", program, *arguments])

    def serve(self) -> subprocess.Popen[bytes]:
        """The server, with its state in the project."""
        flags = ["--grpc", f"{LOOPBACK}:{self.grpc_port}", "--http", f"{LOOPBACK}:{self.http_port}"]
        log = (self.directory / "serve.log").open("wb")
        return subprocess.Popen(
            self.command("serve", *flags), stdout=log, stderr=log, cwd=self.directory, env=self._environment
        )

    def is_ready(self) -> bool:
        """Whether ``/readyz`` says so."""
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False, verify=False, timeout=TIMEOUT_S).is_success
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in _BUILT:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=_NOT_COPIED)
        else:
            shutil.copy(path, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    ran = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(source)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("outside"), wheel)
    with ExitStack() as stack:
        serving = stack.enter_context(made.serve())
        stack.callback(serving.terminate)
        wait_until(made.is_ready, "the server of the wheel")
        yield made


pytestmark = pytest.mark.xdist_group("wheel")


def test_the_page_on_an_index_has_no_links_into_the_repository(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "## The first minute" in text and "docs/kubernetes.md" in text
    assert all(re.match("https?://|#", link) for link in re.findall(r"\]\(([^)]+)\)", text))


def test_the_wheel_brings_one_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"xds"}


def test_the_demo_needs_only_the_wheel_and_an_envoy(project: Project) -> None:
    without = project.ran(project.command("demo", "--once"))
    assert (without.returncode, "revision 1: +1 clusters" in without.stdout) == (4, True), without.stdout
    assert "pip install 'xds-server[envoy]'" in without.stdout
    assert project.ran(project.command("envoy")).returncode == 4
    project.add_envoy()
    assert "Hello from the upstream!" in project.run(project.command("demo", "--once"))
    project.run(project.command("envoy", "--", "--mode", "validate", "-l", "error"))


def test_every_template_is_in_the_wheel(project: Project) -> None:
    for template in Template:
        project.run(project.command("init", template))
    written = sorted(path.name for path in project.directory.iterdir() if path.stem in set(Template))
    assert written == ["canary.yaml", "hello.yaml", "mesh", "tls.yaml", "weighted.yaml"]
    assert sorted(path.name for path in (project.directory / "mesh").iterdir()) == [
        *("README.md", "entries.yaml", "instances.yaml", "upstreams.yaml", "v1", "v2", "xds.yaml"),
    ]


def test_a_snapshot_is_applied(project: Project) -> None:
    file = project.directory / "snapshot.yaml"
    file.write_text(yaml.safe_dump({"resources": [static_cluster("web", 80)]}))
    assert "revision 1" in project.run(project.command("apply", "-g", "edge", "-f", str(file)))
    assert project.run(project.command("get", "clusters", "-g", "edge", "-o", "name")) == "web\n"
    project.run(project.command("validate", "-f", str(file)))
    assert "node" in yaml.safe_load(project.run(project.command("bootstrap", "--node-id", "edge-1")))


def test_client_and_embedding_work_beside_a_package_api(project: Project) -> None:
    assert project.python(PROGRAM, project.url) == "the project\n"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_all_that_it_names(project: Project, page: str) -> None:
    with httpx.Client(base_url=project.url, trust_env=False, verify=False, timeout=TIMEOUT_S) as client:
        shown = client.get(page)
        assert shown.status_code == 200
        assets = re.findall(r'(?:src|href)="(/[^"]+)"', shown.text)
        assert any("/assets/" in each for each in assets)
        assert [each for each in assets if client.get(each).status_code != 200] == []
