"""The changes that requests to register, deregister or update make in the table of registrations. Pure.

Each function returns an `Edit`. The caller stores the edit, and then applies it to the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xds.model.errors import NotFoundError, ValidationError, Violation
from xds.services.core.index import CatalogLimits
from xds.services.core.instance import CHECKS, Health, check_instance
from xds.services.core.registered_instance import (
    AGENT_NODE,
    MAINTENANCE,
    MAINTENANCE_KIND,
    MAINTENANCE_NAME,
    TTL_KIND,
    CheckKey,
    Key,
    RegisteredCheck,
    RegisteredNode,
    Registration,
    find_check,
    with_check,
    without_check,
)
from xds.services.core.registration_rules import CatalogRegistration, cut_output
from xds.services.core.registration_table import Edit, RegistrationTable

NO_REASON = "Maintenance mode is enabled for this service, but no reason was provided. This is a default message."
EXPIRED = "TTL expired"


@dataclass(frozen=True, slots=True)
class Registrant:
    """Who registers, at which IP address, and when (epoch seconds)."""

    actor: str = ""
    host: str = ""
    now_s: int = 0


# Instances


def register(
    table: RegistrationTable, one: Registration, by: Registrant, limits: CatalogLimits, *, replaces_checks: bool = False
) -> Edit:
    """Register an instance, or change it. Raises ``ValidationError``.

    Its existing checks keep their status. Checks that ``one`` does not name stay, unless ``replaces_checks``.
    """
    previous = table.get(one.key)
    existing = {check.id: check for check in previous.checks} if previous is not None else {}
    checks = [_keep_status(check, existing.get(check.id)) for check in one.checks]
    named = {check.id for check in checks}
    others = (check for check in existing.values() if check.id not in named)
    checks += (check for check in others if not replaces_checks or check.kind == MAINTENANCE_KIND)
    registered = _with_origin(replace(one, host=one.address or by.host, checks=tuple(checks)), previous, by)
    _check_limits(table, registered, limits)
    _check(table, registered)
    return Edit() if registered == previous else Edit((registered,))


def deregister(table: RegistrationTable, key: Key) -> Edit:
    """Deregister an instance with its checks. Nothing changes if it does not exist."""
    return Edit(delete=(key,)) if table.get(key) is not None else Edit()


def maintain(table: RegistrationTable, key: Key, is_enabled: bool, reason: str) -> Edit:
    """Begin or end the maintenance of an instance, which is critical meanwhile. Raises ``NotFoundError``."""
    one = table.get(key)
    if one is None:
        raise NotFoundError(f'No service registered with ID "{key.id}"')
    id = MAINTENANCE + key.id
    if is_enabled is (find_check(one, id) is not None):
        return Edit()
    if not is_enabled:
        return Edit((without_check(one, id),))
    notes = cut_output(reason or NO_REASON)
    check = RegisteredCheck(id, MAINTENANCE_NAME, Health.CRITICAL.value, MAINTENANCE_KIND, notes)
    return Edit((with_check(one, check),))


def _keep_status(check: RegisteredCheck, existing: RegisteredCheck | None) -> RegisteredCheck:
    return check if existing is None else replace(check, status=existing.status, output=existing.output)


def _with_origin(one: Registration, previous: Registration | None, by: Registrant) -> Registration:
    """The registration with its actor and the time of the first registration."""
    since = previous.registered_s if previous is not None else by.now_s
    return replace(one, actor=by.actor, registered_s=since)


# Checks


def add_check(table: RegistrationTable, key: Key, check: RegisteredCheck) -> Edit:
    """Add a check to an instance. Raises ``NotFoundError``, ``ValidationError``."""
    one = table.get(key)
    if one is None:
        raise NotFoundError(f'ServiceID "{key.id}" does not exist')
    changed = with_check(one, _keep_status(check, find_check(one, check.id)))
    _check(table, changed)
    return Edit() if changed == one else Edit((changed,))


def remove_check(table: RegistrationTable, key: CheckKey) -> Edit:
    """Remove a check. Raises ``NotFoundError``."""
    owner = table.owner(key)
    if owner is None:
        raise unknown_check(key.id)
    return Edit((without_check(owner, key.id),))


def update_check(table: RegistrationTable, key: CheckKey, status: Health, output: str) -> Edit:
    """Set the status of a TTL check.

    Raises ``NotFoundError`` for an unknown check, ``ValidationError`` for a check without a TTL.
    """
    owner = table.owner(key)
    check = find_check(owner, key.id) if owner is not None else None
    if owner is None or check is None:
        raise unknown_check(key.id)
    if check.kind != TTL_KIND:
        raise ValidationError([Violation("no_ttl", f'CheckID "{key.id}" does not have associated TTL')])
    changed = replace(check, status=status.value, output=cut_output(output))
    return Edit() if changed == check else Edit((with_check(owner, changed),))


def expire_check(table: RegistrationTable, key: CheckKey) -> Edit:
    """Make a TTL check critical that got no status within its TTL."""
    owner = table.owner(key)
    check = find_check(owner, key.id) if owner is not None else None
    if owner is None or check is None:
        return Edit()
    last = check.output.removeprefix(f"{EXPIRED} (last output before timeout follows): ")
    output = f"{EXPIRED} (last output before timeout follows): {last}" if last not in ("", EXPIRED) else EXPIRED
    changed = replace(check, status=Health.CRITICAL.value, output=output)
    return Edit() if changed == check else Edit((with_check(owner, changed),))


def unknown_check(id: str) -> NotFoundError:
    """The error for an unknown check."""
    return NotFoundError(f'Unknown check ID "{id}". Ensure that the check ID is passed, not the check name.')


# The catalog


def register_in_catalog(
    table: RegistrationTable, given: CatalogRegistration, by: Registrant, limits: CatalogLimits
) -> Edit:
    """Put a node, and an instance and checks on it. Other instances and checks stay. Raises ``ValidationError``."""
    node, one = _node(table, given), _instance(table, given, by)
    if node.name == AGENT_NODE and not all(id for id, _ in given.checks):
        raise _error("not_allowed", f"{AGENT_NODE} is this server: its node has no checks", "/Check/ServiceID")
    others: dict[str, Registration] = {}
    for id, check in given.checks:
        if not id:
            node = with_check(node, check)
        elif one is not None and one.id == id:
            one = with_check(one, check)
        else:
            existing = others.get(id) or table.get(Key(node.name, id))
            if existing is None:
                raise _error("unknown_service", "Missing service registration", "/Check/ServiceID")
            others[id] = with_check(existing, check)
    if one is not None:
        one = replace(one, host=one.address or node.address)
        _check_limits(table, one, limits)
    put = [*others.values(), *((one,) if one is not None else ())]
    for each in put:
        _check(table, each)
    _check_owners(table, node.name, (check.id for check in node.checks), node.key)
    nodes = (node,) if node.name != AGENT_NODE and node != table.node(node.name) else ()
    return Edit((*nodes, *_readdressed(table, node, put), *(each for each in put if each != table.get(each.key))))


def deregister_from_catalog(table: RegistrationTable, node: str, service_id: str, check_id: str) -> Edit:
    """Remove an instance, a check, or a node with all its instances from the catalog. Unknown ones change nothing.

    Raises ``ValidationError`` for this server as a node, because all instances that registered themselves are on it.
    """
    if node == AGENT_NODE and not (service_id or check_id):
        raise _error("not_allowed", f"{AGENT_NODE} is this server: name the ServiceID or the CheckID", "/Node")
    if service_id:
        return deregister(table, Key(node, service_id))
    if check_id:
        owner = table.owner(CheckKey(node, check_id))
        return Edit((without_check(owner, check_id),)) if owner is not None else Edit()
    keys = [one.key for one in table.on_node(node)]
    return Edit(delete=(*keys, *((Key(node, ""),) if table.node(node) is not None else ())))


def services_of(table: RegistrationTable, edit: Edit) -> set[str]:
    """The services that an edit changes. Its author must be allowed to register all of them."""
    services: set[str] = set()
    for one in edit.put:
        if isinstance(one, Registration):
            previous = table.get(one.key)
            services |= {one.service, previous.service if previous is not None else one.service}
        else:
            services |= {each.service for each in table.on_node(one.name)}
    for key in edit.delete:
        previous = table.get(key)
        services |= {previous.service} if previous is not None else set()
    return services


def _node(table: RegistrationTable, given: CatalogRegistration) -> RegisteredNode:
    existing = table.node(given.node.name)
    if existing is None:
        return given.node
    return existing if given.keeps_node else replace(given.node, checks=existing.checks)


def _instance(table: RegistrationTable, given: CatalogRegistration, by: Registrant) -> Registration | None:
    one = given.registration
    if one is None:
        return None
    previous = table.get(one.key)
    checks = previous.checks if previous is not None else ()
    return _with_origin(replace(one, checks=checks), previous, by)


def _readdressed(table: RegistrationTable, node: RegisteredNode, put: Iterable[Registration]) -> list[Registration]:
    """The other instances that have the address of the node, with its new address, if the address changes."""
    existing, named = table.node(node.name), {each.id for each in put}
    if existing is None or existing.address == node.address:
        return []
    others = (one for one in table.on_node(node.name) if not one.address and one.id not in named)
    return [replace(one, host=node.address) for one in others]


# Rules over several registrations


def _check(table: RegistrationTable, one: Registration) -> None:
    """Raises ``ValidationError`` for an instance that cannot be an endpoint, or that names a check of another one."""
    violations = check_instance(one.instance())
    if len(one.checks) > CHECKS:
        violations.append(Violation("too_many", f"{len(one.checks)} checks, at most {CHECKS}", pointer="/Checks"))
    if violations:
        raise ValidationError(violations)
    _check_owners(table, one.node, (check.id for check in one.checks), one.key)


def _check_owners(table: RegistrationTable, node: str, ids: Iterable[str], key: Key) -> None:
    for id in ids:
        owner = table.owner(CheckKey(node, id))
        if owner is not None and owner.key != key:
            of = f"the instance {owner.key.id!r}" if owner.key.id else f"the node {node!r}"
            raise _error("duplicate_id", f'CheckID "{id}" is a check of {of}', "/Checks")


def _check_limits(table: RegistrationTable, one: Registration, limits: CatalogLimits) -> None:
    previous = table.get(one.key)
    if previous is None and len(table) >= limits.instances_per_source:
        raise _error("too_many", f"{limits.instances_per_source} instances are registered already")
    if previous is not None and previous.service == one.service:
        return
    if table.count(one.service) >= limits.instances_per_service:
        raise _error("too_many", f"service {one.service!r} has {limits.instances_per_service} instances already")
    if not table.count(one.service) and len(table.services()) >= limits.services:
        raise _error("too_many", f"{limits.services} services are registered already")


def _error(code: str, detail: str, pointer: str = "") -> ValidationError:
    return ValidationError([Violation(code, detail, pointer=pointer)])
