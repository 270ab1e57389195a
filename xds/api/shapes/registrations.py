"""The JSON of registered instances."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import TypedDict

from xds.api.shapes.values import LocalityItem, timestamp
from xds.catalog.instance import worst
from xds.catalog.registered_instance import CheckKey, RegisteredCheck, RegisteredNode, Registration


class RegisteredCheckItem(TypedDict):
    """A check. ``of_node``: it is a check of the node. ``ttl_s`` is 0 for one whose status does not expire.

    ``expires_at`` is null for these, and for one that has expired.
    """

    id: str
    name: str
    status: str
    kind: str
    output: str
    notes: str
    of_node: bool
    ttl_s: float
    deregister_after_s: float
    expires_at: str | None


class RegistrationItem(TypedDict):
    """A registered instance. ``address`` is the one that it is reached at; ``actor`` registered it last.

    ``node`` is `xds-server` for one that registered itself, or was registered here; else the node of a registration
    in Consul's catalog. ``registered_at`` is when it was registered first.
    """

    id: str
    node: str
    service: str
    address: str
    port: int
    ports: dict[str, int]
    tags: list[str]
    meta: dict[str, str]
    weight: int
    warning_weight: int
    locality: LocalityItem
    health: str
    checks: list[RegisteredCheckItem]
    actor: str
    registered_at: str


class RegistrationPage(TypedDict):
    """A page of registered instances."""

    items: list[RegistrationItem]


class RegistrationDeleted(TypedDict):
    """A registration that was deleted."""

    id: str
    service: str


def registration_item(
    one: Registration, node: RegisteredNode | None, expires_at: Callable[[CheckKey], float | None]
) -> RegistrationItem:
    """A registered instance, with the checks of its node."""
    checks = [_check(one.node, check, False, expires_at) for check in one.checks]
    of_node = [_check(one.node, check, True, expires_at) for check in (node.checks if node is not None else ())]
    all_checks = (*one.checks, *(node.checks if node is not None else ()))
    return {
        "id": one.id,
        "node": one.node,
        "service": one.service,
        "address": one.host,
        "port": one.port,
        "ports": {each.name: each.port for each in one.ports},
        "tags": list(one.tags),
        "meta": dict(one.meta),
        "weight": one.weight,
        "warning_weight": one.warning_weight,
        "locality": {"region": one.region, "zone": one.zone, "sub_zone": one.sub_zone},
        "health": worst(check.health for check in all_checks).value,
        "checks": [*checks, *of_node],
        "actor": one.actor,
        "registered_at": timestamp(one.registered_s),
    }


def _check(
    node: str, check: RegisteredCheck, of_node: bool, expires_at: Callable[[CheckKey], float | None]
) -> RegisteredCheckItem:
    expires_s = expires_at(CheckKey(node, check.id))
    return {
        "id": check.id,
        "name": check.name,
        "status": check.status,
        "kind": check.kind,
        "output": check.output,
        "notes": check.notes,
        "of_node": of_node,
        "ttl_s": check.ttl_s,
        "deregister_after_s": check.deregister_after_s,
        "expires_at": timestamp(expires_s) if expires_s is not None else None,
    }
