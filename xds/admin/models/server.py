"""The server: its versions, its caller, and its watched directory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersions:
    """The versions of the server and of what it runs on.

    * ``version``: the version of the server;
    * ``python``: the version of Python;
    * ``envoy_data_plane``: the version of ``envoy-data-plane``, the library with Envoy's API;
    * ``rollouts``: true: pushes take a plan (``rollout``), also in their query.
    """

    schema_name: ClassVar[str] = "VersionItem"

    version: str
    python: str
    envoy_data_plane: str
    rollouts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerIdentity:
    """The caller of this request.

    * ``name``: the name of the token, or of the rule for the certificate; empty for none;
    * ``principal``: the first authenticated principal; empty without authentication;
    * ``principals``: all authenticated principals;
    * ``scopes``: the scopes of the caller;
    * ``authenticated``: false if the server asks for no credentials.
    """

    schema_name: ClassVar[str] = "CallerItem"

    name: str
    principal: str
    principals: tuple[str, ...]
    scopes: tuple[str, ...]
    authenticated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnappliedFiles:
    """Files of a group that are not applied. The group keeps its configuration.

    * ``group``: the name of the group; empty if the directory itself cannot be read;
    * ``files``: the paths of the files;
    * ``since``: since when they are not applied;
    * ``detail``: the first error;
    * ``source``: its place, as ``FILE:LINE:COLUMN``; empty if it is not known;
    * ``findings``: the number of errors.
    """

    schema_name: ClassVar[str] = "RefusedFilesItem"

    group: str
    files: tuple[str, ...]
    since: datetime
    detail: str
    source: str
    findings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFiles:
    """The watched directory.

    * ``directory``: its path; null if none is watched;
    * ``refused``: the files that are not applied, by group, at most a thousand groups;
    * ``refused_total``: the number of groups with such files.
    """

    schema_name: ClassVar[str] = "WatchAnswer"

    directory: str | None
    refused: tuple[UnappliedFiles, ...]
    refused_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The state of the server.

    * ``status``: of ``/livez`` it is ``ok``; of ``/readyz`` the phase of the server, such as ``ready``;
    * ``detail``: of ``/readyz`` what is wrong with the store, and since when; empty if nothing is.
    """

    schema_name: ClassVar[str] = "StatusItem"

    status: str
    detail: str
