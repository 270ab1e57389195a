"""The secrets that do not exist and that content in use newly names, so that a push may bring them soon.

docs/protocol.md#additions: it "is reported as missing `order_timeout_s` after the push". Envoy replaces a listener or a
cluster that serves by one without a certificate when it is told that the secret was removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from xds.model.resource import Resource
from xds.model.resource_type import SECRET, V2_URLS, alias_of, resource_type
from xds.model.snapshot import Snapshot
from xds.snapshots.set_diff import DiffOf
from xds.snapshots.trees import ResourceId

_USERS = frozenset(url for secret in (SECRET, V2_URLS.get(SECRET, SECRET)) for url in resource_type(secret).parents)


def missing_secrets(
    released: Snapshot,
    goal: Snapshot,
    changed_types: Iterable[str],
    diff: DiffOf,
) -> frozenset[str]:
    """The missing secrets that listeners, and clusters and extension configurations in use, newly name in ``goal``.

    Those of new clusters are not among them: nothing is served by these yet.
    """
    named = set[ResourceId]()
    for url in changed_types:
        old, new = released.get(url), goal.get(url)
        if alias_of(url) == "listeners":
            named.update((kind, name) for kind, names in diff(old, new).newly_named for name in names)
        elif url in _USERS:
            for name in diff(old, new).redirected:
                named.update(set(_named_here(new.resources[name])).difference(_named_here(old.resources[name])))
    return frozenset(name for url, name in named if _is_missing_secret(url, name, goal))


def still_named(secrets: Set[str], goal: Snapshot) -> frozenset[str]:
    """The names among ``secrets`` that do not exist and that some listener, cluster or filter of ``goal`` names."""
    users = (each for url in _USERS.intersection(goal.sets) for each in goal.get(url).resources.values())
    named = (secret for user in users for secret in _named_here(user) if secret[1] in secrets)
    return frozenset(name for url, name in named if _is_missing_secret(url, name, goal))


def _named_here(user: Resource) -> Iterator[ResourceId]:
    """The resources that clients request from this server for ``user``."""
    return ((each.type_url, each.name) for each in user.references if each.source in ("ads", "api"))


def _is_missing_secret(url: str, name: str, goal: Snapshot) -> bool:
    return alias_of(url) == "secrets" and name not in goal.get(url).resources
