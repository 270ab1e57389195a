"""Errors of the compilation of a chain."""

from __future__ import annotations

from enum import Enum

from xds.model.errors import XdsError


class CompileRequestError(XdsError):
    """The compile request is wrong: a parameter is missing or not supported."""


class Flaw(Enum):
    """The kinds of contradictions between config entries."""

    PROTOCOL_MISMATCH = "protocol_mismatch"
    PROTOCOL_NOT_HTTP = "protocol_not_http"
    CIRCULAR_REDIRECT = "circular_redirect"
    CIRCULAR_REFERENCE = "circular_reference"
    UNKNOWN_SUBSET = "unknown_subset"
    EXTERNAL_REDIRECT = "external_redirect"
    EXTERNAL_SUBSETS = "external_subsets"
    EXTERNAL_FAILOVER = "external_failover"
    TOO_LARGE = "too_large"


class ChainError(XdsError):
    """Config entries contradict each other; Consul calls this a graph error.

    ``chain`` is the service whose chain fails, ``path`` the nodes from its start to the error.
    """

    def __init__(self, flaw: Flaw, detail: str, chain: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.flaw = flaw
        self.detail = detail
        self.chain = chain
        self.path = path


PATH_SHOWN = 20  # nodes of a path that a message shows


def path_text(path: tuple[str, ...]) -> str:
    """``a -> b -> c``; a long path is shortened in the middle."""
    shown = path
    if len(path) > PATH_SHOWN:
        half = PATH_SHOWN // 2
        shown = (*path[:half], f"... {len(path) - PATH_SHOWN} more ...", *path[-half:])
    return " -> ".join(shown)
