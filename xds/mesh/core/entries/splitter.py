"""service-splitter: the distribution of a service's requests by weight; its fields and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.codec.findings import Findings, short_repr
from xds.consul.quantities import WHOLE, percent
from xds.consul.shape import TEXT, TEXT_MAP, WEIGHT, ListOf, Message, member
from xds.consul.shared import HeaderModifiers, check_tenancy


@dataclass(frozen=True, slots=True)
class Split:
    """One leg. ``weight`` is in basis points. An empty ``service`` means the splitter's own service."""

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


def check_splitter(entry: ServiceSplitter, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    if not entry.splits:
        findings.add("missing_field", "no splits configured", ("Splits",))
        return
    _check_destinations(entry, findings)
    total = sum(split.weight for split in entry.splits)
    if total != WHOLE:
        detail = f"the sum of all split weights must be 100, not {percent(total)}"
        findings.add("bad_sum", detail, ("Splits",), hint="weights count in steps of 0.01")


def _check_destinations(entry: ServiceSplitter, findings: Findings) -> None:
    """Check that no destination occurs twice. An empty service is the entry's own."""
    first: dict[tuple[str, str, str, str], int] = {}
    for index, split in enumerate(entry.splits):
        path = ("Splits", index)
        check_tenancy(split.namespace, split.partition, findings, path)
        key = (split.service or entry.name, split.service_subset, split.namespace, split.partition)
        if first.setdefault(key, index) != index:
            detail = (
                f"split destination occurs more than once: service={short_repr(key[0])}, subset={short_repr(key[1])}"
            )
            findings.add("duplicate_destination", detail, path, hint=f"the other one is Splits[{first[key]}]")
