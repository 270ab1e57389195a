"""The shape of log lines."""

from __future__ import annotations

import io
import json
import logging

import pytest

from tests.server.conftest import Start, until
from xds.fleet.event_log import EventLog
from xds.model.errors import ConflictError
from xds.push import journal as journal_module
from xds.push.journal import PushJournal
from xds.push.request import ChangeError
from xds.server import observer
from xds.server.logs import ERROR_TEXT_LIMIT, configure_logging, get_logger
from xds.store.base import Meta, Rollback


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json_lines_have_the_fixed_fields() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    get_logger("xds.test").info("stream.opened", node_id="n1")
    get_logger("xds.test").debug("ack")
    [line] = lines(out)
    assert (line["event"], line["level"], line["logger"], line["node_id"]) == (
        "stream.opened",
        "info",
        "xds.test",
        "n1",
    )
    assert str(line["ts"]).endswith("Z")
    assert list(line)[:4] == ["ts", "level", "event", "logger"]


def test_long_error_text_is_cut() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    get_logger("xds.test").info("nack", error_message="x" * 10_000)
    [line] = lines(out)
    assert len(str(line["error_message"])) == ERROR_TEXT_LIMIT + 3


def test_logs_of_other_libraries_have_the_same_format() -> None:
    out = io.StringIO()
    configure_logging("debug", stream=out)
    logging.getLogger("uvicorn.error").warning("port %d", 1)
    logging.getLogger("uvicorn.access").info("noise")
    [line] = lines(out)
    assert (line["event"], line["logger"], line["level"]) == ("port 1", "uvicorn.error", "warning")


def test_exceptions_stay_on_one_line() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    try:
        raise ValueError("boom")
    except ValueError:
        get_logger("xds.test").exception("stream.failed")
    [line] = lines(out)
    assert "ValueError: boom" in str(line["exception"])


def test_logs_on_a_terminal_are_text() -> None:
    out = io.StringIO()
    configure_logging("info", json=False, stream=out)
    get_logger("xds.test").info("stream.opened", node_id="n1")
    assert "stream.opened" in out.getvalue()
    assert not out.getvalue().startswith("{")


async def test_a_conversation_in_lines(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed event names; ACKs and responses at debug level only (docs/internals/design.md#operator-surface)."""
    out = io.StringIO()
    configure_logging("debug", stream=out)
    # Loggers keep what they were first used with.
    monkeypatch.setattr(observer, "_log", get_logger("xds.server.discovery"))
    server = await start()
    server.push({"c1": "a"})
    stream = await server.stream()
    await stream.request()
    await stream.ack(await stream.receive())
    server.push({"c1": "b"})
    await stream.ack(await stream.receive(), error="no good")
    await until(lambda: server.metrics.nacks)
    stream.call.cancel()
    await until(server.metrics.closed.total)
    told = {str(line["event"]): line for line in lines(out)}
    who = {"node_id", "node_cluster", "group", "stream_id"}
    exchange = {*who, "type", "nonce"}
    for event, level, fields in (
        ("stream.opened", "info", {*who, "peer", "service", "variant"}),
        ("request.received", "debug", exchange - {"group"}),
        ("response.sent", "debug", {*exchange, "version_sent", "resources_n", "bytes"}),
        ("ack", "debug", {*exchange, "version_acked"}),
        ("nack", "info", {*exchange, "version_sent", "error_code", "error_message"}),
        ("stream.closed", "info", {*who, "peer", "duration_ms", "error_code", "error_message"}),
    ):
        assert told[event]["level"] == level, event
        assert fields <= set(told[event]), (event, fields - set(told[event]))


async def test_pushes_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    monkeypatch.setattr(journal_module, "_log", get_logger("xds.push.publisher"))
    journal = PushJournal(EventLog())
    journal.committed("edge", 2, Rollback(1), Meta("root", actor="ann"), {}, 3, new=False)
    with pytest.raises(ChangeError):
        journal.refused("edge", ChangeError(0, "edge", ConflictError("moved on", 2)), Meta("root", actor="ann"))
    committed, rollback, rejected = lines(out)
    assert [line["event"] for line in (committed, rollback, rejected)] == [
        "snapshot.committed",
        "rollback",
        "snapshot.rejected",
    ]
    assert (committed["group"], committed["revision"], committed["resources_n"], committed["actor"]) == (
        "edge",
        2,
        3,
        "ann",
    )
    assert rollback["to"] == 1
    assert (rejected["error_code"], rejected["error_message"]) == ("conflict", "moved on")
