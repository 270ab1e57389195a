"""Rules for a service-splitter."""

from __future__ import annotations

from xds.catalog.shared_rules import check_common, check_place
from xds.catalog.splitter import ServiceSplitter
from xds.catalog.weight import WHOLE, percent
from xds.codec.findings import Findings, short_repr


def check_splitter(entry: ServiceSplitter, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    check_common(entry.name, entry.meta, entry.namespace, entry.partition, findings)
    if not entry.splits:
        findings.add("missing_field", "no splits configured", ("Splits",))
        return
    _check_destinations(entry, findings)
    total = sum(split.weight for split in entry.splits)
    if total != WHOLE:
        told = f"the sum of all split weights must be 100, not {percent(total)}"
        findings.add("bad_sum", told, ("Splits",), hint="weights count in steps of 0.01")


def _check_destinations(entry: ServiceSplitter, findings: Findings) -> None:
    """Check that no destination occurs twice. An empty service is the entry's own."""
    first: dict[tuple[str, str, str, str], int] = {}
    for index, split in enumerate(entry.splits):
        path = ("Splits", index)
        check_place(split.namespace, split.partition, findings, path)
        key = (split.service or entry.name, split.service_subset, split.namespace, split.partition)
        if first.setdefault(key, index) != index:
            told = f"split destination occurs more than once: service={short_repr(key[0])}, subset={short_repr(key[1])}"
            findings.add("duplicate_destination", told, path, hint=f"the other one is Splits[{first[key]}]")
