"""The served description, fuzzed: answers are as described, and no input is an internal error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Err
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.conftest import sotw
from tests.server.load_client import reporting, told
from tests.support.examples import examples
from tests.support.grpc_stream import GrpcStream
from tests.support.process import wait_until
from tests.support.resources import cluster_load_assignment, eds_cluster, static_cluster
from tests.support.server import ServerProcess

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Existing objects. Of the requests left to chance half use them, and half have no query or headers.
KNOWN = {"group": "default", "type": "clusters", "name": "a", "id": "n1", "cluster": "a"}
KNOWN |= {"kind": "service-resolver", "assignment": "b"}
POLICY = {"capacity": {"rates": [{"per_endpoint_rps": 10}]}}
UPSTREAMS = {"upstreams": [{"service": "api", "bind_port": 9191}]}
_prepared = count(1)
# Valid bodies of these operations cannot be found by chance.
HARD_TO_GUESS = {
    "POST /api/v1/config-entries",
    "PUT /api/v1/config-entries/{kind}/{name}",
    "PUT /api/v1/groups/{group}/assignments/{cluster}",
    "PUT /api/v1/groups/{group}/bindings/{assignment}",
    "GET /api/v1/sources/{name}",  # its names are not those of groups and clusters
    "POST /api/v1/sources/{name}/accept",
    "PATCH /api/v1/groups/{group}/endpoints/{name}",
    "PUT /api/v1/groups/{group}/endpoints/{name}",
    "PUT /api/v1/groups/{group}/resources/{type}/{name}",
    "POST /api/v1/groups/{group}/rollback",
    "POST /api/v1/groups/{group}/rollout",  # a rollout has to be going on
    "POST /api/v1/restore",
    "POST /api/v1/transactions",
}
PROGRESS = "GET /api/v1/groups/{group}/revisions/{revision}/progress"  # waits as long as it is asked to
ENDLESS = {"/api/v1/events"}
REQUEST_TIMEOUT_S = 20
FUZZING_S = 600.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory: Path = tmp_path_factory.mktemp("fuzzed")
    load = told("a", total_successful_requests=1)
    with ServerProcess(directory, ["--store", "memory"]) as running:
        prepare(running)
        with GrpcStream(running.grpc_port, deadline_s=FUZZING_S) as stream:
            stream.send(sotw(node_id="n1")).receive()
            with reporting(running.grpc_port, "n1", load, deadline_s=FUZZING_S):
                # A report is shown when its window is over.
                wait_until(lambda: running.request("GET", "/api/v1/load/a").is_success, "the report is shown")
                yield running


def fuzz(server: ServerProcess) -> dict[str, set[int]]:
    """Fuzz all operations; the statuses that each was answered with."""
    base = f"http://127.0.0.1:{server.http_port}"
    schema = schemathesis.openapi.from_url(f"{base}/api/v1/openapi.json")
    statuses: dict[str, set[int]] = {}
    revision = prepare(server)
    for operation in _operations(schema):
        if operation.path not in ENDLESS:
            if operation.method != "get":
                revision = prepare(server)
            seen = statuses[operation.label] = set()
            _runner(operation, seen, base, revision, is_usual=True)()
            _runner(operation, seen, base, revision, is_usual=False)()
    return statuses


def _operations(schema: Any) -> list[Any]:
    """All operations: first those that change nothing, so that one preparation is enough for them.

    Those that delete are the last, for the node that they disconnect does not come back.
    """
    operations = []
    for result in schema.get_all_operations():
        if isinstance(result, Err):
            raise result.err()
        operations.append(result.ok())
    return sorted(operations, key=lambda operation: {"get": 0, "delete": 2}.get(operation.method, 1))


def prepare(server: ServerProcess) -> int:
    """Make objects for the requests, whatever the fuzzing has deleted; the latest revision of the known group.

    It is of a new push: the progress of the latest pushes alone is kept.
    """
    revision = 0
    for group in ("0", "default"):
        cluster = {**static_cluster("a", 80), "alt_stat_name": f"prepared-{next(_prepared)}"}
        revision = server.push(group, [eds_cluster("0"), cluster_load_assignment("0", 80), cluster])["revision"]
        server.request("PUT", f"/api/v1/groups/{group}/assignments/a", json=POLICY)
        server.request("PUT", f"/api/v1/groups/{group}/endpoints/a", json=cluster_load_assignment("a", 81))
        server.request("PUT", f"/api/v1/groups/{group}/bindings/b", json={"service": "a"})
        server.request("PUT", f"/api/v1/groups/{group}/upstreams", json=UPSTREAMS)
    for timeout_s in (1, 2):
        entry = {"ConnectTimeout": f"{timeout_s}s"}
        server.request("PUT", "/api/v1/config-entries/service-resolver/a", json=entry)
    server.request("PUT", f"/api/v1/registrations/{KNOWN['id']}", json={"Name": "a", "Address": "10.0.0.1", "Port": 1})
    return revision


def _runner(operation: Any, seen: set[int], base: str, revision: int, *, is_usual: bool) -> Callable[[], None]:
    """``is_usual``: all requests are of existing objects, without query and headers: chance may never make one."""
    known = {**KNOWN, "revision": revision}
    chosen = strategies.just(True) if is_usual else strategies.booleans()

    @examples(
        3 if is_usual else 8,
        in_soak=10 if is_usual else 50,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    @hypothesis.given(operation.as_strategy(), chosen, chosen)
    def run(case: Any, is_known: bool, is_plain: bool) -> None:
        if is_known:
            case.path_parameters.update({name: known[name] for name in case.path_parameters if name in known})
        if is_plain:
            case.query.clear()
            case.headers.clear()
        if operation.label == PROGRESS and case.query.get("wait"):
            case.query["wait"] = 0 if isinstance(case.query["wait"], int | float) else "soon"
        answer = case.call(base_url=base, timeout=REQUEST_TIMEOUT_S)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    return run


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)
def test_the_served_description_holds(server: ServerProcess) -> None:
    statuses = fuzz(server)
    assert len(statuses) > 20
    never_found = {label for label, seen in statuses.items() if not seen & {200, 202}}
    assert never_found <= HARD_TO_GUESS
