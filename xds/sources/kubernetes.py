"""Kubernetes as a source: Services and EndpointSlices, listed and watched (docs/services.md#kubernetes).

A task per collection and namespace lists and watches, and applies what it reads to one view. Another task hands the
services that changed to the sink. Nothing is handed on before every collection was listed once: until then the catalog
has the last good set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from xds.catalog.source import Sink
from xds.sources.kubernetes_credentials import ClusterCredentials
from xds.sources.kubernetes_follower import Follower, FollowRules
from xds.sources.kubernetes_handover import Handover
from xds.sources.kubernetes_instances import KIND, InstanceRules
from xds.sources.kubernetes_list_watch import ListWatch
from xds.sources.kubernetes_objects import SERVICES, SLICES
from xds.sources.kubernetes_view import KubernetesView, ViewLimits


class KubernetesSource:
    """A `Source` that reads one cluster: all of it, or some namespaces."""

    kind = KIND

    def __init__(
        self,
        name: str,
        credentials: ClusterCredentials,
        instances: InstanceRules | None = None,
        follow: FollowRules | None = None,
        limits: ViewLimits | None = None,
        namespaces: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._credentials = credentials
        self._instances = instances or InstanceRules()
        self._follow = follow or FollowRules()
        self._limits = limits or ViewLimits()
        self._namespaces = tuple(namespaces) or ("",)

    async def run(self, sink: Sink) -> None:
        """As in `Source`."""
        followed = [
            ListWatch[Any](collection, namespace) for namespace in self._namespaces for collection in (SERVICES, SLICES)
        ]
        view = KubernetesView(self._instances, self._limits)
        handover = Handover(sink, view, map(str, followed))
        followers = [Follower(each, self._credentials, self._follow, handover) for each in followed]
        async with asyncio.TaskGroup() as tasks:
            for follower in followers:
                tasks.create_task(follower.run())
            tasks.create_task(handover.run())
