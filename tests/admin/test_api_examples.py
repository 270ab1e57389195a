"""The examples of the OpenAPI description: a real server takes each request, and each answer is as described.

With ``XDS_WRITE_EXAMPLES=1`` the answers are written to ``example_answers.json`` of the packages.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from tests.server.load_client import reporting, told
from tests.support.description import DESCRIPTION
from tests.support.grpc_stream import SOTW, GrpcStream, sotw, sotw_ack
from tests.support.process import wait_until
from tests.support.resources import CLUSTER_TYPE
from tests.support.server import ServerProcess
from xds.admin.description import KERNEL_TEXTS
from xds.admin.examples import ANSWERS, ApiExample
from xds.app.features import FEATURES

Json = dict[str, Any]

OPERATIONS: dict[str, tuple[str, str, Json]] = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DESCRIPTION["paths"].items()
    for method, operation in methods.items()
}
TEXTS_OF = (KERNEL_TEXTS, *(texts for feature in FEATURES for texts in feature.texts()))
EXAMPLES = {name: example for texts in TEXTS_OF for name, example in texts.examples.items()}
ROOT = Path(__file__).parents[2]
LONGEST_ANSWER = 6_000  # characters
ITEMS_SHOWN = 2
# It needs a source that lost instances.
UNTOLD: dict[str, Json] = {"accept_losses": {"source": "targets", "accepted": {"web": 3}}}
EVENTS, LINES = "text/event-stream", "application/x-ndjson"
# Answers that are not JSON: the part of each that is shown.
TEXTS: dict[str, re.Pattern[str]] = {
    f"get_events {EVENTS}": re.compile(r"id: \d+\nevent: push\ndata: .*\n\n"),
    f"get_events {LINES}": re.compile(r'{"id":.*"kind":"push".*\n'),
    "metrics text/plain": re.compile(r"(# .* xds_server_build_info .*\n)+xds_server_build_info.*\n"),
}
ARCHIVE = "get_backup"
# The examples in the order in which one server takes them: what one makes, a later one reads, changes or deletes.
# fmt: off
STORY = (
    "validate", "put_snapshot", "put_group", "put_resource", "list_groups", "get_group", "get_snapshot",
    "list_resources", "get_resource", "list_revisions", "get_revision", "get_difference", "get_progress",
    "get_rollout", "list_rollouts", "change_rollout", "get_undo", "rollback", "list_nodes", "get_node",
    "get_timeline", "list_held", "explain_node", "explain_document", "list_nacks",
    "list_refused_streams", "list_certificates", "release_node", "release_group",
    "get_bootstrap", "put_assignment", "list_assignments", "get_assignment", "get_assignment_history",
    "delete_assignment", "list_load", "get_load", "get_load_series", "put_registration", "list_registrations",
    "get_registration", "begin_maintenance", "end_maintenance", "list_services", "get_service", "get_destination",
    "list_sources", "get_source", "accept_losses", "put_upstreams", "list_upstreams", "get_upstreams",
    "delete_upstreams", "put_binding", "list_bindings", "get_binding", "delete_binding", "put_endpoints",
    "patch_endpoints", "list_endpoints", "get_endpoints", "delete_endpoints", "put_config_entries",
    "put_config_entry", "list_config_entries", "get_config_entry", "list_config_entry_revisions",
    "get_config_entry_revision", "get_config_entry_difference", "get_discovery_chain", "walk_chain",
    "get_config_entry_undo", "roll_back_config_entries", "delete_config_entry", "transact", "get_events",
    "list_audit", "check", "list_members", "get_watch", "test_access", "get_version", "get_caller",
    "get_config", "get_schema", "get_store", "get_backup", "restore", "disconnect_node", "delete_registration",
    "delete_resource", "delete_snapshot", "delete_group", "livez", "readyz", "metrics",
)
# fmt: on


def test_every_operation_has_an_example_and_no_other() -> None:
    assert set(EXAMPLES) == set(OPERATIONS) == set(STORY)


def test_operations_are_described_in_sentences() -> None:
    tags = {tag["name"] for tag in DESCRIPTION["tags"] if tag["description"]}
    summaries = {name: operation["summary"] for name, (_, _, operation) in OPERATIONS.items()}
    assert [name for name, (_, _, operation) in OPERATIONS.items() if operation["tags"][0] not in tags] == []
    assert [each for each in summaries.values() if not re.fullmatch(r"[A-Z0-9].{8,119}", each)] == []
    assert [name for name, each in summaries.items() if each.replace(" ", "_").lower() == name] == []


def test_the_description_says_where_the_server_is() -> None:
    assert DESCRIPTION["servers"] == [{"url": "/", "description": "This server"}]
    assert DESCRIPTION["info"]["description"]


def test_every_operation_has_an_answer_of_each_media_type() -> None:
    without = [
        (name, media_type)
        for name, (_, _, operation) in OPERATIONS.items()
        for media_type, content in operation["responses"]["200"]["content"].items()
        if "example" not in content
    ]
    assert without == [(ARCHIVE, "application/x-tar")]


@pytest.mark.parametrize("name", UNTOLD)
def test_an_answer_that_no_server_gave_is_as_described(name: str) -> None:
    check_answer(name, 200, "application/json", UNTOLD[name])


def check_answer(name: str, status: int, media_type: str, answer: object) -> None:
    """The answer is as the description says."""
    schema = OPERATIONS[name][2]["responses"][str(status)]["content"][media_type].get("schema", {})
    jsonschema_rs.validator_for({**schema, "components": DESCRIPTION["components"]}).validate(answer)


def test_parameters_of_examples_are_those_of_the_operations() -> None:
    wrong = {}
    for name, example in EXAMPLES.items():
        _, path, operation = OPERATIONS[name]
        given, known = example.parameters.keys(), {each["name"] for each in operation.get("parameters", ())}
        missing = set(re.findall(r"{(\w+)}", path)) - given if example.parameters else set()
        if wrong_names := missing | (given - known - {"group"}):
            wrong[name] = wrong_names
    assert wrong == {}


@pytest.fixture
def server(tmp_path: Path, running: ExitStack) -> ServerProcess:
    return running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))


class Story:
    """The examples in their order against one server, with a node and a stream of load reports where they need them."""

    def __init__(self, server: ServerProcess, running: ExitStack) -> None:
        self._server = server
        self._running = running
        self.answers: dict[str, object] = {**UNTOLD}
        self._archive = b""

    def tell(self) -> None:
        """All examples."""
        for name, example in ((name, EXAMPLES[name]) for name in STORY):
            if name in UNTOLD:
                continue
            answer = self._ask(name, example)
            assert answer.status_code in (200, 202), (name, answer.text)
            self._check(name, answer)
            self._after(name, answer)

    def _ask(self, name: str, example: ApiExample) -> httpx.Response:
        method, path, _ = OPERATIONS[name]
        in_path = set(re.findall(r"{(\w+)}", path))
        query = {key: _text(value) for key, value in example.parameters.items() if key not in in_path}
        asked = path.format(**{key: example.parameters[key] for key in in_path})
        content: Json = {"json": example.body} if example.body is not None else {}
        if name == "restore":
            content = {"content": self._archive, "headers": {"content-type": "application/x-tar"}}
        if name == "get_events":
            self._read_events(asked, query)
            query |= {"follow": "false"}
        return self._server.request(method, asked, params=query, **content)

    def _read_events(self, path: str, query: dict[str, str]) -> None:
        for media_type in (EVENTS, LINES):
            past = {**query, "since": "1h", "follow": "false"}
            answer = self._server.request("GET", path, params=past, headers={"accept": media_type})
            self._keep_text(f"get_events {media_type}", answer)

    def _keep_text(self, name: str, answer: httpx.Response) -> None:
        found = TEXTS[name].search(answer.text)
        assert found, (name, answer.text[:1000])
        self.answers[name] = found[0]

    def _check(self, name: str, answer: httpx.Response) -> None:
        """The answer is as the description says, and is kept if it is short."""
        media_type = answer.headers["content-type"].partition(";")[0]
        described = OPERATIONS[name][2]["responses"][str(answer.status_code)].get("headers", {})
        has_etag = "etag" in answer.headers or name == "delete_group"  # which has one in a dry run only
        assert has_etag == ("ETag" in described), name
        if name in (ARCHIVE, "get_events"):
            return
        if media_type == "text/plain":
            self._keep_text(f"{name} {media_type}", answer)
            return
        check_answer(name, answer.status_code, media_type, answer.json())
        shown = _shortened(json.loads(answer.text.replace(str(self._server.data), "./xds-data")))
        if name == "get_schema":  # it is long
            shown = {key: value for key, value in answer.json().items() if isinstance(value, str)}
            self.answers[f"{name} {media_type}"] = shown
        if len(json.dumps(shown)) <= LONGEST_ANSWER:
            self.answers[name] = shown

    def _after(self, name: str, answer: httpx.Response) -> None:
        if name == "put_snapshot":
            self._connect()
        elif name == "get_backup":
            self._archive = answer.content

    def _connect(self) -> None:
        """A node that ACKs, and one that reports load."""
        stream = self._running.enter_context(GrpcStream(self._server.grpc_port, SOTW))
        stream.send(sotw(CLUSTER_TYPE, node_id="edge-1", cluster="edge"))
        stream.send(sotw_ack(stream.receive()))
        load = told("web", total_successful_requests=20)
        self._running.enter_context(reporting(self._server.grpc_port, "edge-1", load))
        wait_until(lambda: self._server.request("GET", "/api/v1/load/web").status_code == 200, "load of web")


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shortened(value: object) -> object:
    """The answer with the first items of its lists."""
    if isinstance(value, list):
        return [_shortened(item) for item in value[:ITEMS_SHOWN]]
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return value


def test_a_server_takes_every_example(server: ServerProcess, running: ExitStack) -> None:
    story = Story(server, running)
    story.tell()
    if os.environ.get("XDS_WRITE_EXAMPLES"):
        for texts in TEXTS_OF:
            own = {name: answer for name, answer in story.answers.items() if name.split()[0] in texts.examples}
            file = ROOT / texts.package.replace(".", "/") / ANSWERS
            file.write_text(json.dumps(own, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    written = {name for texts in TEXTS_OF for name in texts.answers()}
    assert written == story.answers.keys(), "run it with XDS_WRITE_EXAMPLES=1"
