"""The JSON of registered instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.values import NodeLocality, time_of

if TYPE_CHECKING:
    from xds.services.core.registered_instance import RegisteredCheck, Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationCheck:
    """A check of a registered instance, or of its node.

    * ``id``: its id, unique on its node;
    * ``name``: its name; may be empty;
    * ``status``: ``passing``, ``warning`` or ``critical``;
    * ``kind``: who checks, such as ``ttl``; ``maintenance`` for the check of a maintenance;
    * ``output``: the output that was reported last;
    * ``notes``: what the registration says about it;
    * ``of_node``: true for a check of the node;
    * ``ttl_s``: the TTL within which its status must be reported again; 0: its status does not expire;
    * ``deregister_after_s``: how long it must be critical until the instance is deregistered; 0: never;
    * ``expires_at``: when its TTL ends; null if it has no TTL or the TTL has ended.
    """

    schema_name: ClassVar[str] = "RegisteredCheckItem"

    id: str
    name: str
    status: str
    kind: str
    output: str
    notes: str
    of_node: bool
    ttl_s: float
    deregister_after_s: float
    expires_at: datetime | None

    @classmethod
    def from_domain(cls, check: RegisteredCheck, of_node: bool, expires_s: float | None) -> RegistrationCheck:
        """A check of an instance or of its node."""
        expires_at = time_of(expires_s) if expires_s is not None else None
        return copied(cls, check, of_node=of_node, expires_at=expires_at)


ExpiryOf = Callable[["RegisteredCheck"], float | None]  # epoch seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredInstance:
    """A registered instance with its checks.

    * ``id``: its id, unique on its node;
    * ``node``: ``xds-server`` for an instance that registered itself or was registered here; else the node that the
      registration in Consul's catalog names;
    * ``address``: the IP address at which clients reach it;
    * ``port``: its port;
    * ``ports``: further ports by name;
    * ``tags``: its tags;
    * ``meta``: its metadata;
    * ``weight``: its weight while it is passing;
    * ``warning_weight``: its weight while a check warns;
    * ``locality``: its locality;
    * ``health``: the worst status of its checks and those of its node: ``passing``, ``warning`` or ``critical``;
    * ``checks``: its checks and those of its node;
    * ``actor``: the authenticated principal that registered it last; empty without authentication;
    * ``registered_at``: when it was registered first.
    """

    schema_name: ClassVar[str] = "RegistrationItem"

    id: str
    node: str
    service: str
    address: str
    port: int
    ports: Mapping[str, int]
    tags: tuple[str, ...]
    meta: Mapping[str, str]
    weight: int
    warning_weight: int
    locality: NodeLocality
    health: str
    checks: tuple[RegistrationCheck, ...]
    actor: str
    registered_at: datetime

    @classmethod
    def from_domain(
        cls, one: Registration, of_node: Iterable[RegisteredCheck], health: str, expires_s: ExpiryOf
    ) -> RegisteredInstance:
        """A registered instance, with the checks ``of_node``; ``health`` is the worst of all."""
        checks = [(check, False) for check in one.checks] + [(check, True) for check in of_node]
        return copied(
            cls,
            one,
            address=one.host,
            ports={each.name: each.port for each in one.ports},
            meta=dict(one.meta),
            health=health,
            checks=tuple(RegistrationCheck.from_domain(check, node, expires_s(check)) for check, node in checks),
            registered_at=time_of(one.registered_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationPage:
    """A page of registered instances, by id."""

    items: tuple[RegisteredInstance, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationDeleted:
    """The registration that was deleted.

    * ``id``: the id of the instance.
    """

    id: str
    service: str
