"""``xds validate``: checks files without a server, and reports all findings at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from xds.cli.additions import ADDITIONS
from xds.cli.checks import Checked, Checks
from xds.cli.client import Client, RefusedError
from xds.cli.errors import CommandError, Exit, file_errors
from xds.cli.files import Text, files_by_group, located, read_bytes, read_object, shown_name, with_excerpt
from xds.cli.output import Format, counted, print_error, say, write, write_answer, write_document
from xds.cli.resources import list_resources
from xds.codec.crosscheck import check_references, check_unique
from xds.codec.findings import Findings
from xds.codec.resources import ResourceDecoder
from xds.codec.schema import add_descriptor_sets
from xds.codec.source_fit import check_bootstrap
from xds.model.errors import ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.model.resource_type import type_url_of

SEVERITIES = ("warning", "error")
BOOTSTRAP_LIMIT_BYTES = 64 << 20


def check_files(paths: Iterable[Path], group: str, checks: Checks) -> list[Checked]:
    """Check files, group by group. Raises ``CommandError`` for a file that cannot be read."""
    add_descriptors(checks.descriptor_sets)
    return [_check(name, files, checks) for name, files in files_by_group(paths, group).items()]


def show_findings(results: Sequence[Checked], format: Format | None, threshold: str) -> None:
    """Write all findings. Raises ``CommandError`` with exit 3 if one of them reaches ``threshold``."""
    findings = [finding for checked in results for finding in checked.findings]
    if format in {Format.JSON, Format.YAML}:
        write_document({"items": [asdict(finding) for finding in findings]}, format)
    elif format is Format.JSONL:
        for finding in findings:
            write_document(asdict(finding), Format.JSONL)
    else:
        write("".join(f"{finding_text(finding)}\n" for finding in findings))
    _raise_for_findings(results, findings, threshold)


def show_checked(results: Sequence[Checked], format: Format | None, threshold: str) -> None:
    """As ``show_findings``, for a dry run of a push: findings are messages, the numbers of resources are data."""
    findings = [finding for checked in results for finding in checked.findings]
    for finding in findings:
        print_error(finding_text(finding))
    _raise_for_findings(results, findings, threshold, is_quiet=True)
    shown = [{"group": checked.group, "resources": len(checked.resources), "dry_run": True} for checked in results]
    counts = ((checked.group, counted(len(checked.resources), "resource")) for checked in results)
    text = "".join(f"group {group}: {count}, valid\n" for group, count in counts)
    write_answer(format, shown[0] if len(shown) == 1 else shown, lambda: text)


def finding_text(finding: Violation) -> str:
    """``file:line:col: severity: resource pointer: detail (hint)``."""
    place = " ".join(part for part in (finding.resource, finding.pointer) if part)
    parts = [finding.source, finding.severity, place, finding.detail]
    return ": ".join(part for part in parts if part) + (f" ({finding.hint})" if finding.hint else "")


def _raise_for_findings(
    results: Sequence[Checked], findings: Sequence[Violation], threshold: str, is_quiet: bool = False
) -> None:
    """Print the numbers of findings, or raise ``CommandError`` with them if one reaches ``threshold``."""
    errors = sum(finding.severity == "error" for finding in findings)
    counts = f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
    if errors or (threshold == "warning" and findings):
        raise CommandError(Exit.INVALID, counts)
    if not is_quiet:
        total = sum(len(checked.resources) for checked in results)
        say(f"{counted(total, 'resource')} in {counted(len(results), 'group')}: {counts}")


def _check(group: str, files: Sequence[Path], checks: Checks) -> Checked:
    """Check one group: every file alone, then all files together."""
    checked = Checked(group)
    for file in files:
        _read(file, checked)
    if not any(finding.severity == "error" for finding in checked.findings):
        checked.findings += located(_set_findings(checked, checks), checked.texts)
    return checked


def _read(file: Path, checked: Checked) -> None:
    text = Text(shown_name(file), read_bytes(file), len(checked.resources))
    try:
        pushed = ResourceDecoder().document(text.body, source=text.name)
    except ValidationError as error:
        checked.findings += [with_excerpt(with_source(finding, text.name), text.body) for finding in error.violations]
    else:
        checked.texts.append(text)
        checked.resources += pushed.resources
        checked.findings += [with_source(finding, text.name) for finding in pushed.warnings]


def _set_findings(checked: Checked, checks: Checks) -> Iterator[Violation]:
    """Findings about all files together: duplicates, references, removals, and those of Envoy."""
    findings = Findings()
    check_unique(dict(enumerate(checked.resources)), findings)
    yield from findings.violations
    removed = _removed(checked, checks.live) if checks.live is not None else set()
    yield from check_references(checked.resources, removed=removed)
    yield from _bootstrap_findings(checked.resources, checks.bootstraps)
    if checks.envoy is not None and not findings:
        yield from _envoy_findings(checked.resources, checks.envoy, checks.timeout_s)
    for check in ADDITIONS.checks:
        yield from check(checked, checks)


def _bootstrap_findings(resources: Sequence[Resource], files: Iterable[Path]) -> Iterator[Violation]:
    """Config sources that do not fit the bootstraps in these files. Raises ``CommandError``."""
    for file in files:
        document = read_object(file, "a bootstrap", BOOTSTRAP_LIMIT_BYTES)
        for finding in check_bootstrap(resources, document):
            yield replace(finding, detail=f"{shown_name(file)}: {finding.detail}")


def _removed(checked: Checked, client: Client) -> set[tuple[str, str]]:
    """The resources of the group on the server that the files lack. A push would remove them."""
    try:
        items = list(list_resources(client, checked.group))
    except RefusedError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        return set()
    served = {(type_url_of(item["type"]), item["name"]) for item in items}
    return served - {(resource.type_url, resource.name) for resource in checked.resources}


def _envoy_findings(resources: Sequence[Resource], envoy: Path, timeout_s: float) -> list[Violation]:
    from xds.envoy.envoy_check import deep_check

    with file_errors(envoy):
        return asyncio.run(deep_check(resources, envoy, timeout_s))


def add_descriptors(files: Sequence[Path]) -> None:
    """Add the user's message types. Raises ``CommandError``."""
    if not files:
        return
    try:
        add_descriptor_sets(files)
    except XdsError as error:
        raise CommandError(Exit.USAGE, str(error)) from None


def with_source(finding: Violation, name: str) -> Violation:
    """The finding, which is in the file ``name`` if it says no other place."""
    return finding if finding.source else replace(finding, source=name)
