"""No test is disturbed by what another did to logging."""

from __future__ import annotations

import io
import logging

import structlog
from structlog.testing import capture_logs

from tests.support.own_logging import own_logging
from xds.server.logs import configure_logging, get_logger

_log = get_logger("tests.own_logging")


def test_a_stream_of_another_test_is_not_written_to() -> None:
    out = io.StringIO()
    with own_logging():
        configure_logging("warning", stream=out)
        _log.warning("first")
        logging.getLogger("asyncio").warning("second")
    out.close()
    assert not structlog.is_configured()
    _log.warning("a closed stream would raise")
    assert not [each for each in logging.root.handlers if getattr(each, "stream", None) is out]


def test_logs_are_captured_after_a_server_was_configured() -> None:
    with own_logging():
        configure_logging("error", stream=io.StringIO())
        _log.error("first")
    with own_logging(), capture_logs() as captured:
        _log.info("second")
    assert [line["event"] for line in captured] == ["second"]
    assert not structlog.is_configured()


def test_levels_propagation_and_handlers_of_the_standard_library_are_as_before() -> None:
    logger = logging.getLogger("tests.own_logging.child")
    handler = logging.StreamHandler(io.StringIO())
    before = logging.root.level, list(logging.root.handlers)
    with own_logging():
        logging.root.setLevel(logging.CRITICAL)
        logging.root.handlers[:] = []
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate, logger.disabled = False, True
    assert (logging.root.level, logging.root.handlers) == before
    assert (logger.handlers, logger.level, logger.propagate, logger.disabled) == ([], logging.NOTSET, True, False)


def test_a_configuration_that_was_there_is_there_again() -> None:
    outer, inner = io.StringIO(), io.StringIO()
    configure_logging("info", stream=outer)
    with own_logging():
        configure_logging("info", stream=inner)
        _log.info("inner")
    _log.info("outer")
    assert '"inner"' in inner.getvalue()
    assert '"outer"' in outer.getvalue()
    assert '"inner"' not in outer.getvalue()


def test_the_fixture_resets_the_state_of_the_test_before() -> None:
    assert not structlog.is_configured()
