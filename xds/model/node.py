"""Nodes, their localities, and the groups that they belong to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

_FINGERPRINT_BYTES = 6

NODE_BYTES = 256 * 1024  # the default limit; Envoy's node has 61 kB, nearly all of it a list of its extensions


@dataclass(frozen=True, slots=True)
class Locality:
    """Where a node runs. A part that the client did not send is empty."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.region, self.zone, self.sub_zone) if part)


@dataclass(frozen=True, slots=True)
class Node:
    """An xDS client as it identifies itself.

    ``metadata`` is the decoded ``google.protobuf.Struct``. ``user_agent`` is text for display, such as ``envoy
    1.40.0``; ``user_agent_name`` and ``user_agent_version`` are its parts.
    """

    id: str
    cluster: str = ""
    locality: Locality = Locality()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    user_agent: str = ""
    client_features: frozenset[str] = frozenset()
    user_agent_name: str = ""
    user_agent_version: str = ""

    @property
    def reads_errors(self) -> bool:
        """Whether a client of this node reads resource_errors (A88); Envoy uses its own timers."""
        return self.user_agent_name.startswith("gRPC")

    @property
    def fingerprint(self) -> str:
        """A hash of everything except the id that may decide the content of a node."""
        where = self.locality
        locality = (where.region, where.zone, where.sub_zone)
        identity = (self.cluster, locality, self.metadata, self.user_agent_name, self.user_agent_version)
        text = json.dumps(identity, sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=_FINGERPRINT_BYTES).hexdigest()


DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class GroupMatch:
    """The group of a node, and the rule that chose it, as operators see it."""

    group: str
    rule: str


def candidate_groups(node: Node) -> Iterator[GroupMatch]:
    """The groups that a node may belong to, by precedence: named like its id, like its cluster, ``default``."""
    yield GroupMatch(node.id, "node.id")
    if node.cluster:
        yield GroupMatch(node.cluster, "node.cluster")
    yield GroupMatch(DEFAULT_GROUP, "default")


def match_group(node: Node, exists: Callable[[str], bool]) -> GroupMatch | None:
    """The first candidate group that exists; None while none does, and the node waits."""
    return next((match for match in candidate_groups(node) if exists(match.group)), None)
