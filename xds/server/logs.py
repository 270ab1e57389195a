"""Log configuration: one JSON object per line, or colours on a terminal.

Field names: ``ts level event logger``, then ``node_id node_cluster group stream_id peer type version_sent
version_acked nonce revision resources_n bytes duration_ms error_code error_message request_id actor``. Event names are
fixed dotted words: ``stream.opened stream.closed request.received response.sent ack nack snapshot.committed
snapshot.rejected rollback ...``. One INFO line per stream open, close, NACK and commit; the rest is DEBUG.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from xds.model.node import Node

HEAD = ("ts", "level", "event", "logger")
ERROR_TEXT_LIMIT = 2000  # Envoy's messages embed whole protos; the NACK record has the full text


def configure_logging(level: str = "info", json: bool | None = None, stream: TextIO | None = None) -> bool:
    """Set up structlog and route the standard library's loggers (uvicorn, grpc, asyncio) through it.

    ``json`` None means: console colours when ``stream`` (stderr) is a terminal, else JSON. Returns whether it is JSON.
    """
    out = stream if stream is not None else sys.stderr
    as_json = json if json is not None else not out.isatty()
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        _logger_name,
        _bounded_error,
    ]
    structlog.configure(
        processors=[*shared, *_rendering(as_json)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    _route_stdlib(shared, as_json, number, out)
    return as_json


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger with a name. It reads its configuration on first use, so modules may create it at import."""
    logger: FilteringBoundLogger = structlog.get_logger(logger_name=name)
    return logger


def shorten(text: str) -> str:
    """Text from a client, cut to the length that a log line may have."""
    return text if len(text) <= ERROR_TEXT_LIMIT else text[:ERROR_TEXT_LIMIT] + "..."


def address_fields(service: str, peer: str, principal: str = "", **more: str) -> dict[str, str]:
    """The fields of a log line that say where a stream comes from. ``service`` is the short name (``ADS``)."""
    principal_field = {"principal": shorten(principal)} if principal else {}
    return {"service": service, **more, "peer": peer, **principal_field}


def identity_fields(stream_id: int, node: Node | None, group: str) -> dict[str, Any]:
    """The fields of a log line that identify a stream and its node."""
    if node is None:
        return {"stream_id": stream_id}
    node_fields = {"node_id": shorten(node.id), "node_cluster": shorten(node.cluster), "group": group}
    return {"stream_id": stream_id, **node_fields}


def _rendering(as_json: bool) -> Sequence[Processor]:
    if as_json:
        return (structlog.processors.format_exc_info, _head_first, structlog.processors.JSONRenderer())
    return (structlog.dev.ConsoleRenderer(timestamp_key="ts"),)


def _head_first(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Put the same fields first in every line, for people who read it."""
    return {**{name: event[name] for name in HEAD if name in event}, **event}


def _bounded_error(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    message = event.get("error_message")
    if isinstance(message, str):
        event["error_message"] = shorten(message)
    return event


def _route_stdlib(shared: Sequence[Processor], as_json: bool, level: int, out: TextIO) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(as_json)],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))  # other libraries' INFO lines are of no use to an operator


def _logger_name(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    name = record.name if record is not None else event.pop("logger_name", None)
    if name is not None:
        event["logger"] = name
    return event
