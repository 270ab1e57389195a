"""The shape of log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from xds.server.logs import ERROR_TEXT_LIMIT, configure_logging, get_logger


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


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


def test_long_error_text_is_cut() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    get_logger("xds.test").info("nack", error_message="x" * 10_000)
    [line] = lines(out)
    assert len(str(line["error_message"])) == ERROR_TEXT_LIMIT + 3


def test_other_libraries_speak_the_same_form() -> None:
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


def test_a_terminal_gets_words() -> None:
    out = io.StringIO()
    configure_logging("info", json=False, stream=out)
    get_logger("xds.test").info("stream.opened", node_id="n1")
    assert "stream.opened" in out.getvalue()
    assert not out.getvalue().startswith("{")
