"""The models of answers: they need no server, and both ends of the API agree on their JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.support.features import FEATURE_ROOMS
from xds.admin.models.copying import copied
from xds.admin.models.nodes import (
    HeldOnNode,
    NodePolls,
    NodeStatus,
    NodeStream,
    NodeTypeStatus,
    UnexpressedName,
)
from xds.admin.models.reading import ShapeError, read_object
from xds.admin.models.values import NodeLocality
from xds.admin.models.writing import document_of
from xds.fleet.state import HeldResources

SINCE = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
STATUS = NodeTypeStatus(
    type_url="type.googleapis.com/envoy.config.cluster.v3.Cluster",
    state="synced",
    version_sent="2",
    version_acked="2",
    revision=None,
    subscribed=("*",),
    subscribed_total=0,
    missing=(),
    since=SINCE,
)
STREAM = NodeStream(
    id=1, peer="127.0.0.1:1", principal="", service="ADS", variant="delta", api="v3", opened=SINCE,
    types={"clusters": STATUS},
)  # fmt: skip
NODE = NodeStatus(
    id="edge-1",
    cluster="edge",
    locality=NodeLocality("eu", "eu-1", ""),
    group="edge",
    user_agent="envoy 1.40",
    connected=True,
    first_seen=SINCE,
    last_seen=SINCE,
    streams=(STREAM,),
    types={"clusters": STATUS},
    lingering=(),
    lingering_total=0,
    held=(),
)


def test_models_are_imported_without_the_server() -> None:
    """The client library and commands import them."""
    program = (
        "import pkgutil, sys, importlib\n"
        f"rooms = {['xds.admin', *FEATURE_ROOMS]}\n"
        "packages = [importlib.import_module(f'{room}.models') for room in rooms]\n"
        "names = [f'{each.__name__}.{name}' for each in packages for _, name, _ in"
        " pkgutil.iter_modules(getattr(each, '__path__', []))]\n"
        "assert len(names) > 8\n"
        "[importlib.import_module(name) for name in names]\n"
        "allowed = {'xds', 'xds.version', *rooms, *(each.__name__ for each in packages), *names}\n"
        "print(sorted(n for n in sys.modules if n.partition('.')[0] in ('xds', 'fastapi', 'pydantic')"
        " and n not in allowed))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_node_is_read_as_it_was_written() -> None:
    written = json.loads(json.dumps(document_of(NODE)))
    assert read_object(NodeStatus, written) == NODE
    assert written["first_seen"] == "2026-01-02T03:04:05.678Z" and written["types"]["clusters"]["revision"] is None


def test_times_of_other_zones_are_written_in_utc() -> None:
    polls = NodePolls(SINCE.astimezone(timezone(timedelta(hours=2))), 5.0)
    assert document_of(polls) == {"last": "2026-01-02T03:04:05.678Z", "interval_s": 5.0}


def test_a_field_is_absent_while_it_has_its_default() -> None:
    document = document_of(STATUS)
    assert not {"error", "guilty", "unexpressed"} & document.keys()
    rejected = NodeTypeStatus(**{name: getattr(STATUS, name) for name in document}, error="no such filter")
    assert document_of(rejected) == {**document, "error": "no such filter", "guilty": []}
    sent = NodeTypeStatus(
        **{name: getattr(STATUS, name) for name in document}, unexpressed=(UnexpressedName("web", "x"),)
    )
    assert document_of(sent) == {**document, "unexpressed": [{"name": "web", "problem": "x"}]}


def test_held_resources_begin_with_their_node() -> None:
    held = copied(HeldOnNode, HeldResources((("listeners", "web"),), 1, ("a",)), node="edge-1")
    assert list(document_of(held).items()) == [
        ("node", "edge-1"),
        ("resources", [{"type": "listeners", "name": "web"}]),
        ("count", 1),
        ("waits_for", ["a"]),
        ("any_cluster", False),
        ("waits_for_others", []),
    ]


def test_a_node_of_an_older_or_newer_server_can_be_read() -> None:
    document = document_of(NODE)
    del document["held"], document["lingering_total"]
    assert read_object(NodeStatus, {**document, "of_tomorrow": 1}) == NODE


@pytest.mark.parametrize("document", [{}, {"error": "no"}, [], {**document_of(NODE), "streams": "none"}])
def test_another_answer_is_no_node(document: object) -> None:
    with pytest.raises(ShapeError):
        read_object(NodeStatus, document)
