"""Logging as it was before a test.

A server that starts within the process of the tests configures logging for the whole process: structlog, whose loggers
keep the configuration of their first use, and the root logger. Later tests of the same worker would write to a closed
stream, and would miss the log lines that they expect.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

_PACKAGES = ("xds.", "tests.")


@contextmanager
def own_logging() -> Iterator[None]:
    """Restore logging at the end of the body."""
    config, was_configured = structlog.get_config(), structlog.is_configured()
    config["processors"] = list(config["processors"])  # the list is changed in place by some
    loggers = {logger: _settings(logger) for logger in _loggers()}
    try:
        yield
    finally:
        if structlog.is_configured() != was_configured or structlog.get_config() != config:
            _configure(config if was_configured else None)
        for logger, (handlers, level, propagates, disabled) in loggers.items():
            logger.handlers[:] = handlers
            logger.propagate, logger.disabled = propagates, disabled
            if logger.level != level:
                logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


def _settings(logger: logging.Logger) -> tuple[list[logging.Handler], int, bool, bool]:
    return list(logger.handlers), logger.level, logger.propagate, logger.disabled


def _configure(config: dict[str, object] | None) -> None:
    """``config`` None: nothing was configured."""
    if config is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**config)  # type: ignore[arg-type]
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES):
            for value in list(vars(module).values()):
                _forget_first_use(value)


def _forget_first_use(value: object) -> None:
    """A logger that was first used under ``cache_logger_on_first_use`` keeps that configuration as an attribute."""
    if isinstance(value, structlog._config.BoundLoggerLazyProxy):
        vars(value).pop("bind", None)
