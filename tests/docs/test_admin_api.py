"""docs/admin-api.md and docs/operations.md name what the server has: every path, and metrics that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.process import REPOSITORY
from tests.support.server import ServerProcess

PREFIX = "/api/v1"
ROW = re.compile(r"^\| `(GET|PUT|PATCH|POST|DELETE) (/\S+)` \|", re.MULTILINE)
METRIC = re.compile(r"`(xds_server_\w+)`")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"]) as started:
        yield started


def test_every_path_of_the_api_is_documented_and_no_other(server: ServerProcess) -> None:
    documented = set(ROW.findall((REPOSITORY / "docs/admin-api.md").read_text()))
    paths = server.get("/openapi.json")["paths"]
    served = {
        (method.upper(), path.removeprefix(PREFIX))
        for path, methods in paths.items()
        if path.startswith(PREFIX)
        for method in methods
    }
    assert documented == served


def test_the_table_of_metrics_has_those_that_exist(server: ServerProcess) -> None:
    """By the families' declarations, for some have no sample before something happened."""
    page = (REPOSITORY / "docs/operations.md").read_text()
    table = page[page.index("<!-- metrics:") : page.index("<!-- end of metrics")]
    text = server.request("GET", "/metrics").text
    declared = set(re.findall(r"^# TYPE (xds_server_\S+) ", text, re.MULTILINE))
    assert set(METRIC.findall(table)) == declared
    assert set(METRIC.findall(page)) <= declared
