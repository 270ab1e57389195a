"""service-splitter: the distribution of a service's requests by weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.catalog.header_modifiers import HeaderModifiers
from xds.catalog.shape import TEXT, TEXT_MAP, WEIGHT, ListOf, Message, member


@dataclass(frozen=True, slots=True)
class Split:
    """One leg. ``weight`` is in basis points. Without ``service`` it leads to the splitter's own service."""

    weight: int = member("Weight", WEIGHT, always=True)
    service: str = member("Service", TEXT)
    service_subset: str = member("ServiceSubset", TEXT)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)
    request_headers: HeaderModifiers | None = member("RequestHeaders", Message(HeaderModifiers))
    response_headers: HeaderModifiers | None = member("ResponseHeaders", Message(HeaderModifiers))


@dataclass(frozen=True, slots=True)
class ServiceSplitter:
    """The splitter of the service with its name. Weights sum up to 100 percent."""

    kind: ClassVar[str] = "service-splitter"

    name: str = member("Name", TEXT, always=True)
    splits: tuple[Split, ...] = member("Splits", ListOf(Message(Split)), always=True)
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)
