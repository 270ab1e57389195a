"""The part of ``xds validate`` that concerns policies: those in files, and those of the group on the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xds.cli.checks import Checked, Checks
from xds.cli.client import Client, RefusedError
from xds.cli.errors import Exit
from xds.cli.files import shown_name
from xds.cli.validate import with_source
from xds.model.errors import ValidationError, Violation
from xds.model.resource_type import CLUSTER
from xds.steering import calls
from xds.steering.core.policy_document import parse_policy
from xds.steering.policy_review import review_policy
from xds.steering.tables import read_policy


def policy_findings(checked: Checked, checks: Checks) -> Iterator[Violation]:
    """Findings about policies: those in files, and those of the group on the server."""
    resources = {(one.type_url, one.name): one for one in checked.resources}
    documents = [(shown_name(file), read_policy(file)) for file in checks.policies]
    documents += [("", item["policy"]) for item in _server_policies(checked.group, checks.live)]
    policies = []
    for source, document in documents:
        try:
            policies.append((source, parse_policy(document)))
        except ValidationError as error:
            yield from (with_source(finding, source) for finding in error.violations)
    for source, policy in policies:
        names = [name for type_url, name in resources if type_url == CLUSTER]
        findings = review_policy(policy, lambda *key: resources.get(key), names, [one.cluster for _, one in policies])
        yield from (with_source(finding, source) for finding in findings)


def _server_policies(group: str, client: Client | None) -> list[dict[str, Any]]:
    """The policies that the server has for a group."""
    if client is None:
        return []
    try:
        return list(client.items(calls.policies(group)))
    except RefusedError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        return []
