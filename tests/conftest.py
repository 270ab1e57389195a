"""Fixtures of tests that drive real processes."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test

from tests.support.background import Background
from tests.support.commands import COMMANDS
from tests.support.examples import register_profiles
from tests.support.own_logging import own_logging
from tests.support.pki import Certificate
from tests.support.process import LOG_TAIL_BYTES
from tests.support.server_forks import FORKS, kept_for_good
from tests.support.upstream import Upstream

# grpc's fork handlers break the epoll of a process that starts children (read when grpc is first imported).
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Whatever the environment says: compiling the modules and rewriting the assertions of the tests takes each worker two
# thirds of its collection, and each process that is started most of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

register_profiles()

ID_LENGTH = 80  # of a value in the name of a test; names go to the controller of the workers again and again
SOAK_TIMEOUT_S = 3600  # of each test in `make soak`, unless it has a limit of its own

_STDERR = pytest.StashKey[int]()

# A job in the background of a script ignores it, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # while a test runs, 2 is what is captured of it


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that share a fixture of their module run in one worker, so that it is made once.

    Hypothesis takes the end of a test's time for a failed example, tries it again, and calls it flaky.
    """
    limit = item.get_closest_marker("timeout")
    if limit and limit.args[0] < SOAK_TIMEOUT_S and is_hypothesis_test(getattr(item, "obj", None)):
        raise pytest.UsageError(f"{item.nodeid}: the many examples of `make soak` need {SOAK_TIMEOUT_S} s")
    if item.get_closest_marker("xdist_group") is None and any(map(_is_of_module, _fixtures(item))):
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers take tests in an order that mixes those of all folders: some wait for processes, others compute."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: crc32(_unit(item).encode()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _ends_process(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _ends_process(item):
        return (yield)


@contextmanager
def _ends_process(item: pytest.Item) -> Iterator[None]:
    """After twice the time limit of the test, end the process and show where its threads are.

    pytest-timeout interrupts neither the code of a library in C nor what is torn down behind a failure.
    """
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getoption("timeout") or item.config.getini("timeout"))
    faulthandler.dump_traceback_later(2 * limit_s, exit=True, file=item.config.stash[_STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _unit(item: pytest.Item) -> str:
    """What one worker runs in the order of its file: a group of tests, or one test."""
    group = item.get_closest_marker("xdist_group")
    return str(group.args[0]) if group else item.nodeid


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """The beginning of a long value, instead of megabytes."""
    if isinstance(val, str | bytes) and len(val) > ID_LENGTH:
        return f"{val[:ID_LENGTH]!a} of {len(val)}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The tests, and all that they import, stay."""
    with kept_for_good():
        return (yield)


def _fixtures(item: pytest.Item) -> Iterator[pytest.FixtureDef[object]]:
    for definitions in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
        yield definitions[-1]


def _is_of_module(fixture: pytest.FixtureDef[object]) -> bool:
    return fixture.scope == "module" and fixture.func.__module__.startswith(__package__ or "")


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """Ends the processes that fork servers and commands."""
    yield
    FORKS.close()
    COMMANDS.close()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undoes what the test changes of logging; a server within the process of the tests configures all of it."""
    with own_logging():
        yield


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Ends what was entered into it, last first, whatever the test did."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def background(running: ExitStack) -> Background:
    """A loop in a thread for upstreams, proxies and load; closed after everything entered later."""
    return running.enter_context(Background())


@pytest.fixture
def upstream(background: Background, running: ExitStack) -> Callable[[str], Upstream]:
    """Starts upstreams by name."""

    def start(name: str) -> Upstream:
        started = Upstream(background, name)
        running.callback(started.close)
        return started

    return start


@pytest.fixture
def secure_upstream(background: Background, running: ExitStack) -> Callable[[str, Certificate], Upstream]:
    """Starts TLS upstreams by name and certificate."""

    def start(name: str, certificate: Certificate) -> Upstream:
        started = Upstream(background, name, certificate.server_context())
        running.callback(started.close)
        return started

    return start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of every child's log below a failed test."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        report.sections += [(log.name, log.read_text(errors="replace")[-LOG_TAIL_BYTES:]) for log in _logs(directory)]
    return report


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))
