"""The contract of a source: where instances come from (docs/services.md#sources).

A source observes some system and passes the instances to its sink. It stores nothing itself: the catalog keeps the last
good set while the source cannot be read, holds sudden losses, and drains removed instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from xds.model.errors import Violation, XdsError
from xds.services.core.instance import Instance

Instances = Sequence[Instance]


class SourceError(XdsError):
    """The source cannot be read now. The message names the request and the answer."""


class Sink(Protocol):
    """Receives what one source observes. All methods return at once; changes reach proxies soon."""

    def put(self, service: str, instances: Instances) -> None:
        """Set all present instances of a service. Instances with findings are left out and reported."""

    def remove(self, service: str) -> None:
        """Remove a service that the source no longer has, with all its instances."""

    def replace(self, services: Mapping[str, Instances]) -> None:
        """Set all services of the source. Services that are not named are removed."""

    def alive(self) -> None:
        """Report that the whole source was read, and nothing has changed. It has no service that it did not show."""

    def failed(self, message: str) -> None:
        """Report that the source cannot be read now. It retries; its last good set stays in force."""

    def rejected(self, findings: Sequence[Violation]) -> None:
        """Report parts of the source that are left out; ``pointer`` of a finding names the place."""

    def wanted(self) -> frozenset[str]:
        """The names of the services that something here uses.

        A source that calls this puts each of them, also those without instances: until then a service is not known.
        """

    async def wait_for_wanted(self, known: frozenset[str]) -> frozenset[str]:
        """Wait until ``wanted`` differs from ``known``, and return it."""


class Source(Protocol):
    """One source. ``name`` is chosen by the operator and unique, ``kind`` says what it reads (``consul``, ``dns``)."""

    @property
    def name(self) -> str:
        """The name in settings, metrics, events and listings."""

    @property
    def kind(self) -> str:
        """The kind of system that it reads."""

    async def run(self, sink: Sink) -> None:
        """Observe until cancelled.

        An exception is reported and ends this run only: ``run`` is called again after a growing delay. A source reports
        expected faults, such as a server that does not answer, by ``sink.failed``, and retries itself.
        """
