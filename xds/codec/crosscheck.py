"""Checks over several resources: duplicate names in a push, dangling references, and addresses or domains that
conflict.

Almost every finding is a warning: a proxy may have the cluster or secret from its own bootstrap, or request it on
demand. Only what Envoy certainly refuses is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import Any

from xds.codec import schema
from xds.codec.conflicts import (
    LISTENERS,
    ListenerAddress,
    RepeatedDomain,
    addresses_of,
    repeated_by_host,
    repeated_domains,
)
from xds.codec.findings import FINDINGS_LIMIT, FieldPath, Findings
from xds.codec.grpc_rules import assignment_warnings, reached_assignments
from xds.codec.references import reference_paths, served_elsewhere
from xds.model.errors import Violation
from xds.model.names import WILDCARD
from xds.model.resource import Reference, Resource
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    SECRET,
    V2_URLS,
    VIRTUAL_HOST,
    alias_of,
)

ResourceKey = tuple[str, str]  # (type_url, name)
ResourcesByType = Mapping[str, Mapping[str, Resource]]  # by type URL and name
# Beyond these limits findings have no hint or path, which take time to compute.
_HINTS_LIMIT = 10
_CANDIDATES_LIMIT = 200
_PLACED_BYTES_LIMIT = 1 << 20

_NOTHING: ResourcesByType = MappingProxyType({})
_V3_URLS = {v2: v3 for v3, v2 in V2_URLS.items()}
STILL_REFERENCED = "still_referenced"  # the code of a reference to a resource that is deleted
_WORDS = {
    CLUSTER: ("cluster", "requests for it fail unless the proxies know it from elsewhere"),
    ENDPOINT: ("assignment", "the cluster gets no endpoints, and what newly leads to it waits up to order_timeout_s"),
    EXTENSION_CONFIG: ("extension config", "the listener waits for it, then goes without"),
    LISTENER: ("internal listener", "connections to it fail unless the proxies have it from elsewhere"),
    ROUTE: ("route configuration", "requests get 404"),
    SCOPED_ROUTE: ("scoped route", "requests get 404"),
    SECRET: ("secret", "no TLS connection can be made"),
    VIRTUAL_HOST: ("virtual host", "requests get 404"),
}
_BY_NAME_ALONE = "a name without sds_config means a static secret of the bootstrap"
# Types on the way from an API listener to an assignment.
_TOWARDS_ASSIGNMENTS = frozenset((LISTENER, ROUTE, CLUSTER, ENDPOINT))
_REFER_TO_NOTHING = (SECRET,)
# Types that are of no use without a reference, and the types that can refer to them.
_REFERRERS: Mapping[str, tuple[str, ...]] = {
    ENDPOINT: (CLUSTER,),
    ROUTE: (LISTENER, SCOPED_ROUTE),
    SECRET: (CLUSTER, LISTENER, EXTENSION_CONFIG),
}


def check_references(
    resources: Iterable[Resource],
    *,
    removed: Collection[ResourceKey] = (),
    known: ResourcesByType | None = None,
    elsewhere: Container[ResourceKey] = (),
) -> list[Violation]:
    """Findings between resources: errors first, then warnings, each at most ``FINDINGS_LIMIT``.

    Without ``known``, ``resources`` are a whole set in pushed order. With it, they are pushed to a group that has the
    resources ``known``, and only what they affect is checked. ``removed`` are the keys that are deleted: a reference
    to one of them has a message of its own. ``elsewhere`` are resources that clients get from another place.
    """
    check = _Check(list(resources), frozenset(removed), known, elsewhere)
    check.check_existence()
    check.check_sources()
    check.check_addresses()
    check.check_domains()
    check.check_hosts()
    check.check_grpc()
    if known is None:
        check.check_use()
    else:
        check.check_referrers(known)
    return [*check.findings.violations, *check.findings.warnings]


class _Check:
    def __init__(
        self,
        checked: list[Resource],
        removed: frozenset[ResourceKey],
        known: ResourcesByType | None,
        elsewhere: Container[ResourceKey],
    ) -> None:
        self.findings = Findings()
        self._checked = checked
        self._removed = removed
        self._elsewhere = elsewhere
        self._is_whole = known is None
        self._known = known if known is not None else _NOTHING
        self._pushed: dict[str, dict[str, Resource]] = {}
        for one in checked:
            self._pushed.setdefault(one.type_url, {})[one.name] = one
        self._aliases: dict[str, set[str]] = {}
        self._routes_with_hosts: set[str] | None = None
        self._hints_left = _HINTS_LIMIT
        self._bytes_left = _PLACED_BYTES_LIMIT

    # The content of the group after the change

    def _exists(self, type_url: str, name: str) -> bool:
        if name in self._pushed.get(type_url, ()):
            return True
        return name in self._known.get(type_url, ()) and (type_url, name) not in self._removed

    def _unchanged(self, type_url: str) -> Iterator[Resource]:
        """Resources of a type that the change does not touch."""
        put = self._pushed.get(type_url, {})
        for name, resource in self._known.get(type_url, {}).items():
            if name not in put and (type_url, name) not in self._removed:
                yield resource

    def _all(self, type_url: str) -> Iterator[Resource]:
        yield from self._pushed.get(type_url, {}).values()
        yield from self._unchanged(type_url)

    # References

    def check_existence(self) -> None:
        for index, resource in enumerate(self._checked):
            if not resource.references:
                continue
            missing = [one for one in resource.references if one.source != "path" and not self._has(resource, one)]
            if missing:
                self._select(resource, index)
                self._report_missing(resource, missing)

    def check_referrers(self, known: ResourcesByType) -> None:
        """Report unchanged resources that refer to a deleted one."""
        if not any(_v3(type_url) in _WORDS for type_url, _ in self._removed):
            return
        names = {name for _, name in self._removed}
        for type_url, members in known.items():
            for resource in members.values() if _v3(type_url) not in _REFER_TO_NOTHING else ():
                if any(one.name in names for one in resource.references):
                    self._check_referrer(resource)

    def _check_referrer(self, resource: Resource) -> None:
        """Report a resource that refers to a deleted one, unless it is deleted or pushed as well."""
        key = (resource.type_url, resource.name)
        if key in self._removed or resource.name in self._pushed.get(resource.type_url, ()):
            return
        missing = [one for one in resource.references if (one.type_url, one.name) in self._removed]
        missing = [one for one in missing if not self._has(resource, one)]
        if missing:
            self._select(resource, -1)
            self._report_missing(resource, missing)

    def check_use(self) -> None:
        """Report resources without a reference, if the set has any resource of a type that could refer to them."""
        used = {(one.type_url, one.name) for each in self._checked for one in each.references}
        for index, resource in enumerate(self._checked):
            type_url = _v3(resource.type_url)
            referrers = _REFERRERS.get(type_url)
            if referrers is None or (resource.type_url, resource.name) in used:
                continue
            if not used.isdisjoint(_in_both_versions(resource.type_url, resource.name)):
                continue
            if not any(url in self._pushed for referrer in referrers for url in (referrer, V2_URLS.get(referrer, ""))):
                continue
            if used.isdisjoint((resource.type_url, alias) for alias in resource.aliases):
                self._select(resource, index)
                detail = f"no {_listed(referrers)} here refers to this {_WORDS[type_url][0]}"
                self.findings.warn("unused", detail, hint=_BY_NAME_ALONE if type_url == SECRET else "")

    def _has(self, resource: Resource, one: Reference) -> bool:
        if one.name == WILDCARD:
            return self._has_any(resource, one)
        if self._exists(one.type_url, one.name) or (one.type_url, one.name) in self._elsewhere:
            return True
        if any(self._exists(*key) for key in _in_both_versions(one.type_url, one.name)):
            return True
        if one.type_url not in self._aliases:
            self._aliases[one.type_url] = {alias for each in self._all(one.type_url) for alias in each.aliases}
        return one.name in self._aliases[one.type_url]

    def _has_any(self, resource: Resource, one: Reference) -> bool:
        """A wildcard means all scopes, or all virtual hosts of the route configuration.

        The cluster ``*`` stands for clusters that the content does not name: it cannot be missing.
        """
        if _v3(one.type_url) == CLUSTER:
            return True
        types = [type_url for type_url, _ in _in_both_versions(one.type_url, "")]
        if _v3(one.type_url) != VIRTUAL_HOST:
            return any(True for type_url in types for _ in self._all(type_url))
        if self._routes_with_hosts is None:  # hosts are called <route configuration>/<host>
            hosts = (each for type_url in types for each in self._all(type_url))
            self._routes_with_hosts = {each.name.rpartition("/")[0] for each in hosts}
        return resource.name in self._routes_with_hosts

    def _report_missing(self, resource: Resource, missing: list[Reference]) -> None:
        if len(self.findings.warnings) >= FINDINGS_LIMIT:
            return
        places, elsewhere = self._places(resource)
        for one in missing:
            if (one.type_url, one.name) in elsewhere:
                continue
            place = places.get((one.type_url, one.name), ())
            what, consequence = _WORDS.get(_v3(one.type_url), (alias_of(one.type_url), "it will be missing"))
            if (one.type_url, one.name) in self._removed:
                detail = f"still refers to the {what} {one.name!r}, which this push deletes; {consequence}"
                self.findings.warn(STILL_REFERENCED, detail, place)
            elif one.name == WILDCARD:
                self.findings.warn("missing_reference", f"there is no {what} for it; {consequence}", place)
            else:
                detail = f"there is no {what} {one.name!r}; {consequence}"
                self.findings.warn("missing_reference", detail, place, hint=self._hint(one))

    def _hint(self, one: Reference) -> str:
        if self._hints_left == 0:
            return ""
        self._hints_left -= 1
        near = (each.name for each in self._all(one.type_url) if _is_near(one.name, each.name))
        candidates = islice(near, _CANDIDATES_LIMIT)
        close = get_close_matches(one.name, candidates, n=1, cutoff=0.75)
        return f"did you mean {close[0]!r}?" if close else ""

    def _places(self, resource: Resource) -> tuple[Mapping[ResourceKey, FieldPath], Collection[ResourceKey]]:
        """The paths of a resource's references, and the references that clients request from another server."""
        self._bytes_left -= len(resource.body)
        message = schema.parsed(resource.type_url, resource.body) if self._bytes_left >= 0 else None
        if message is None:
            return {}, ()
        return reference_paths(resource.type_url, message), served_elsewhere(resource.type_url, message)

    def check_sources(self) -> None:
        """Report a resource that is named by two config sources of different bytes.

        See docs/internals/clients.md#config-sources.

        Assignments are not reported: each cluster is sent with its assignment, so Envoy has it by any source.
        """
        named = {_key(one) for each in self._checked for one in each.references if _has_source(one)}
        if not named:
            return
        owners: dict[ResourceKey, tuple[Resource, int]] = {}
        for type_url in self._known:
            for other in self._unchanged(type_url):
                for one in other.references:
                    if _has_source(one) and _key(one) in named:
                        owners.setdefault(_key(one), (other, one.source_hash))
        reported: set[ResourceKey] = set()
        for index, resource in enumerate(self._checked):
            for one in filter(_has_source, resource.references):
                owner, source_hash = owners.setdefault(_key(one), (resource, one.source_hash))
                if source_hash != one.source_hash and _key(one) not in reported:
                    reported.add(_key(one))
                    self._select(resource, index)
                    self._report_sources(resource, one, owner)

    def _report_sources(self, resource: Resource, one: Reference, owner: Resource) -> None:
        if len(self.findings.warnings) >= FINDINGS_LIMIT:
            return
        what, _ = _WORDS.get(_v3(one.type_url), (alias_of(one.type_url), ""))
        name = "" if one.name == WILDCARD else f" {one.name!r}"
        where = "here" if owner is resource else f"in {alias_of(owner.type_url)}/{owner.name}"
        detail = f"the {what}{name} has another config source {where}; Envoy subscribes once for each"
        place = self._places(resource)[0].get(_key(one), ())
        self.findings.warn("two_sources", detail, place, hint="write the same config source in both")

    # Addresses and domains

    def check_addresses(self) -> None:
        listeners = [(index, one) for index, one in enumerate(self._checked) if one.type_url in LISTENERS]
        if not listeners:
            return
        owners: dict[ListenerAddress, Resource] = {}
        for type_url in LISTENERS:
            for other in self._unchanged(type_url):
                owners |= dict.fromkeys(addresses_of(other), other)
        for index, listener in listeners:
            for address in addresses_of(listener):
                owner = owners.setdefault(address, listener)
                if owner is not listener:
                    self._select(listener, index)
                    self._note_clash(address, listener, owner)

    def _note_clash(self, address: ListenerAddress, listener: Resource, owner: Resource) -> None:
        """Report a clash: a warning between listeners of gRPC servers, whose names contain the address.

        Each gRPC server requests its own listener, so one set may serve many servers with the same address.
        """
        note: Callable[..., Any] = self.findings.add
        host_port = str(address).rpartition("/")[0]
        if host_port and host_port in listener.name and host_port in owner.name:
            note = self.findings.warn
        detail = f"listener {owner.name!r} has the address {address} already; Envoy refuses the second"
        note("address_clash", detail, ("address",))

    def check_domains(self) -> None:
        for index, resource in enumerate(self._checked):
            for path, domain, host, owner in repeated_domains(resource):
                self._select(resource, index)
                where = f"in virtual host {owner!r} too" if host != owner else "there already"
                detail = f"domain {domain!r} of virtual host {host!r} is {where}; Envoy refuses the route configuration"
                self.findings.add("duplicate_domain", detail, path)

    def check_hosts(self) -> None:
        """Report virtual hosts by VHDS with a domain that their route configuration has inline.

        Of a pushed route configuration all virtual hosts are compared, of others the pushed ones.
        """
        pushed = self._pushed.get(VIRTUAL_HOST, {})
        indexes = {(one.type_url, one.name): index for index, one in enumerate(self._checked)}
        types = (ROUTE, LISTENER, SCOPED_ROUTE)
        for type_url in types if pushed else [each for each in types if each in self._pushed]:
            for one in self._all(type_url):
                if not any(each.type_url == VIRTUAL_HOST and each.name == WILDCARD for each in one.references):
                    continue
                is_pushed = (type_url, one.name) in indexes
                hosts = self._all(VIRTUAL_HOST) if is_pushed else pushed.values()
                for host, repeated in repeated_by_host(one, hosts):
                    self._report_host(one, host, repeated, indexes.get((VIRTUAL_HOST, host.name), -1))

    def _report_host(self, configuring: Resource, host: Resource, repeated: RepeatedDomain, index: int) -> None:
        self._select(host, index)
        where = f"virtual host {repeated.owner!r} of {alias_of(configuring.type_url)}/{configuring.name}"
        detail = f"domain {repeated.domain!r} is in {where} too; Envoy refuses what comes second"
        self.findings.add("duplicate_domain", detail, repeated.path, hint="keep the domain in one of them")

    # gRPC clients

    def check_grpc(self) -> None:
        """Warn of what gRPC clients refuse or ignore in assignments that an API listener leads to.

        Of those that the change touches: where only assignments are pushed, the others are as they were.
        """
        types = self._pushed.keys() & _TOWARDS_ASSIGNMENTS
        if not types:
            return
        only_pushed = types == {ENDPOINT}
        indexes = {(one.type_url, one.name): index for index, one in enumerate(self._checked)}
        for assignment in reached_assignments(self._all(LISTENER), self._find):
            index = indexes.get((assignment.type_url, assignment.name), -1)
            if only_pushed and index < 0:
                continue
            for problem in assignment_warnings(assignment):
                self._select(assignment, index)
                self.findings.warn(problem.code, problem.detail, problem.path, hint=problem.hint)

    def _find(self, one: Reference) -> Resource | None:
        pushed = self._pushed.get(one.type_url, {}).get(one.name)
        if pushed is not None or (one.type_url, one.name) in self._removed:
            return pushed
        return self._known.get(one.type_url, {}).get(one.name)

    def _select(self, resource: Resource, index: int) -> None:
        self.findings.select_resource(index if self._is_whole else -1)
        self.findings.name_resource(resource.type_url, resource.name)
        self.findings.base = () if resource.ttl_s is None else ("resource",)  # a resource with a TTL is in a wrapper


def _key(one: Reference) -> ResourceKey:
    return one.type_url, one.name


def _has_source(one: Reference) -> bool:
    return bool(one.source_hash) and alias_of(one.type_url) not in ("endpoints", "virtual_hosts")


def _v3(type_url: str) -> str:
    return _V3_URLS.get(type_url, type_url)


def _in_both_versions(type_url: str, name: str) -> tuple[ResourceKey, ...]:
    """A name under its v3 and v2 types: v2 clients are served v3 resources."""
    v3 = _v3(type_url)
    return ((v3, name), (V2_URLS[v3], name)) if v3 in V2_URLS else ((v3, name),)


def _is_near(wanted: str, name: str) -> bool:
    """A cheap test before the comparison; true for a name with one typing error."""
    alike = name[:1] == wanted[:1] or name[-2:] == wanted[-2:]
    return alike and abs(len(name) - len(wanted)) <= 2


def _listed(type_urls: Iterable[str]) -> str:
    return " or ".join(alias_of(type_url).removesuffix("s").replace("_", " ") for type_url in type_urls)


RESOURCE_LIMIT = 4 * 1024 * 1024


def check_size(body: bytes, limit: int, findings: Findings) -> None:
    """A resource must fit into one response: gRPC clients accept messages up to 4 MiB by default."""
    if len(body) > limit:
        findings.add("too_large", f"{len(body)} bytes; the limit is {limit}")


def check_unique(resources: Mapping[int, Resource], findings: Findings) -> None:
    """Within a type, a name or alias belongs to one resource. ``resources`` are by their position in the push."""
    owners: dict[tuple[str, str], int] = {}
    for index, resource in resources.items():
        owner = owners.setdefault((resource.type_url, resource.name), index)
        if owner != index:
            _note(findings, index, resource, "duplicate_name", "two resources of this type have this name", owner)
    for index, resource in resources.items():
        for alias in resource.aliases:
            owner = owners.setdefault((resource.type_url, alias), index)
            if owner != index and resources[owner].name != resource.name:
                detail = f"{alias!r} means {resources[owner].name!r} too"
                _note(findings, index, resource, "duplicate_alias", detail, owner)


def _note(findings: Findings, index: int, resource: Resource, code: str, detail: str, other: int) -> None:
    findings.select_resource(index)
    findings.name_resource(resource.type_url, resource.name)
    findings.add(code, detail, hint=f"the other one is resources[{other}]")
