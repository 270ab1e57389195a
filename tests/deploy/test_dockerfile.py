"""The image: what it is built from, whom it runs as, and that what its build installs is a whole server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.dockerfile import Stage, read_stages
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, child_environment, free_port
from xds.app.settings import load_settings
from xds.settings.sections import GRPC_PORT, HTTP_PORT
from xds.settings.settings import SettingsError

BUILD, FINAL = read_stages(REPOSITORY / "Dockerfile")
INSTALL_TIMEOUT_S = 100
PACKAGE = "xds"
BUILD_TOOLS = re.compile(r"\b(gcc|g\+\+|build-essential|apt-get|pip|make)\b")


def copied(stage: Stage) -> list[str]:
    """What the stage takes from the folder that the image is built in."""
    outside = [instruction for instruction in stage.all("COPY") if not instruction.rest.startswith("--from")]
    return [source for instruction in outside for source in instruction.arguments[:-1]]


def test_everything_copied_exists_and_is_not_ignored() -> None:
    sources = copied(BUILD) + copied(FINAL)
    let_in = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(sources) == sorted(let_in)
    assert not [source for source in sources if not (REPOSITORY / source).exists()]


def test_the_image_runs_as_nobody_special_and_has_no_build_tools() -> None:
    made = " ".join(instruction.rest for instruction in FINAL.all("RUN"))
    user = FINAL.last("USER").rest
    assert user not in ("root", "0")
    assert re.search(rf"useradd .*--uid [1-9]\d* .*\b{user}\b", made)
    assert not BUILD_TOOLS.search(made)
    assert FINAL.image.endswith("-slim")


def test_the_data_is_a_volume_that_the_user_owns() -> None:
    data = FINAL.environment()["XDS_STORE__DATA"]
    assert FINAL.last("VOLUME").rest == data
    assert f"install --directory --owner {FINAL.last('USER').rest}" in FINAL.last("RUN").rest
    assert FINAL.last("RUN").rest.endswith(data)


def test_the_ports_are_those_of_the_server() -> None:
    assert FINAL.last("EXPOSE").rest.split() == [str(GRPC_PORT), str(HTTP_PORT)]


def test_the_image_needs_credentials_to_listen_to_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FINAL.environment().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=r"server\.grpc\.tls"):
        load_settings()
    settings = load_settings(flags={"server": {"insecure": True}})
    assert (settings.server.grpc.host, settings.server.http.host) == ("0.0.0.0", "0.0.0.0")
    assert settings.store.data == Path(FINAL.environment()["XDS_STORE__DATA"])


def test_the_lock_names_a_version_of_every_dependency() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = (*project["dependencies"], *project["optional-dependencies"]["postgres"])  # the image can use a database
    needed = {_normal(re.split(r"[\[<>=~!]", line)[0]) for line in lines}
    locked = _locked("requirements.run.lock")
    assert needed
    assert not needed - locked.keys()


def test_every_locked_file_has_its_hash() -> None:
    """pip installs nothing else then (``--require-hashes``); the smaller locks have what the whole one has."""
    whole = _locked("requirements.lock")
    for name in ("requirements.lock", "requirements.run.lock", "requirements.envoy.lock"):
        for package, lines in _locked(name).items():
            assert len(lines) > 1, package
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line) for line in lines[1:]), package
            assert lines == whole[package], package
    assert "--require-hashes -r requirements.lock" in (REPOSITORY / "Makefile").read_text()


def test_the_actions_of_the_release_are_named_by_commit() -> None:
    """A tag can be moved by whoever owns the action, or has taken it over."""
    workflow = (REPOSITORY / ".github/workflows/release.yml").read_text()
    used = re.findall(r"uses: (\S+)", workflow)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


def _locked(name: str) -> dict[str, list[str]]:
    """The lines of each package of a lock: the version, and the hashes of its files."""
    text = (REPOSITORY / name).read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {
        _normal(line[0].partition("==")[0]): [word for word in line if "==" in word or "--hash" in word]
        for line in lines
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip().lower())


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the image is built from."""
    directory = tmp_path_factory.mktemp("build")
    for source in copied(BUILD):
        path = REPOSITORY / source
        if path.is_dir():
            shutil.copytree(path, directory / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, directory / source)
    shutil.copytree(REPOSITORY / "tools", directory / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    return directory


@pytest.fixture(scope="module")
def wheel(build: Path) -> Path:
    """The wheel, built by the tools of the lock rather than by freshly loaded ones."""
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".", cwd=build)
    return next((build / "dist").glob("*.whl"))


def test_the_wheel_holds_every_file_of_the_packages(build: Path, wheel: Path) -> None:
    files = {str(path.relative_to(build)) for path in (build / PACKAGE).rglob("*") if path.is_file()}
    held = set(zipfile.ZipFile(wheel).namelist())
    assert "xds/proto/envoy_descriptors.bin" in files
    assert not files - held
    assert not [name for name in held - files if ".dist-info/" not in name]


def test_the_wheel_holds_no_generators(build: Path, wheel: Path) -> None:
    """``tools`` stands beside the packages where the wheel is built from a checkout, and stays there."""
    assert (build / "tools/proto/generate.py").exists()
    names = zipfile.ZipFile(wheel).namelist()
    assert not [
        name
        for name in names
        if name.startswith("tools/") or name in ("xds/proto/generate.py", "xds/proto/describe.py")
    ]


def test_the_server_runs_from_the_installed_package(wheel: Path, tmp_path: Path, running: ExitStack) -> None:
    """As the build does it, but for the dependencies: those are the ones of this environment."""
    make_venv, locked, install = BUILD.last("RUN").rest.split(" && ")
    assert make_venv == "python -m venv --without-pip /opt/xds"
    assert locked == "pip --python /opt/xds install --no-cache-dir --require-hashes -r requirements.run.lock"
    assert install == "pip --python /opt/xds install --no-cache-dir --no-deps ."
    venv = tmp_path / "opt/xds"
    _run(sys.executable, "-m", "venv", "--without-pip", str(venv), cwd=tmp_path)
    _pip("install", "--no-deps", str(wheel), cwd=tmp_path, venv=venv)
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    found = _run(str(venv / "bin/python"), "-c", "import xds; print(xds.__file__)", cwd=tmp_path)
    assert found.startswith(str(site))
    address = f"{LOOPBACK}:{free_port()}"
    argv = [str(venv / "bin/xds"), "serve", "--grpc", f"{LOOPBACK}:0", "--http", address]
    environment = {"PYTHONPATH": "", "XDS_STORE__DATA": str(tmp_path / "data")}
    server = running.enter_context(ChildProcess("xds", argv, tmp_path, environment))
    check = FINAL.last("HEALTHCHECK").rest.partition("CMD ")[2]
    assert check == '["xds", "check", "--ready"]'

    def healthy() -> bool:
        argv = [str(venv / "bin/xds"), "check", "--ready"]
        done = subprocess.run(argv, env=child_environment({"XDS_ADDR": address, "PYTHONPATH": ""}), check=False)
        return done.returncode == 0

    server.wait_until(healthy, "healthy")
    pushed = _run(
        str(venv / "bin/xds"),
        *("apply", "-g", "hello", "-f", str(REPOSITORY / "examples/hello/snapshot.yaml")),
        cwd=tmp_path,
        environment={"XDS_ADDR": address},
    )
    assert "revision 1" in pushed


def _pip(*arguments: str, cwd: Path, venv: Path | None = None) -> None:
    target = ["--python", str(venv)] if venv is not None else []
    _run(sys.executable, "-m", "pip", *target, "--disable-pip-version-check", "--quiet", *arguments, cwd=cwd)


def _run(*argv: str, cwd: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        env=child_environment({"PYTHONPATH": "", **(environment or {})}),
        check=False,
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout
