"""All registrations: by node and id, by service, and by the ids of their checks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from xds.services.core.instance import Instance
from xds.services.core.registered_instance import CheckKey, Key, Registered, RegisteredNode, Registration


@dataclass(frozen=True, slots=True)
class Edit:
    """The changes of a request: registrations and nodes to put, and keys to delete."""

    put: tuple[Registered, ...] = ()
    delete: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.delete)


class RegistrationTable:
    """Registrations and nodes in the order of arrival, and the instances made from them."""

    def __init__(self) -> None:
        self._registrations: dict[Key, Registration] = {}
        self._nodes: dict[str, RegisteredNode] = {}
        self._on_node: dict[str, dict[str, None]] = {}  # ids by node
        self._of_service: dict[str, dict[Key, None]] = {}
        self._check_owners: dict[CheckKey, Key] = {}
        self._instances: dict[Key, Instance] = {}

    def __len__(self) -> int:
        return len(self._registrations)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registrations.values())

    # Reading

    def get(self, key: Key) -> Registration | None:
        """A registration."""
        return self._registrations.get(key)

    def node(self, name: str) -> RegisteredNode | None:
        """A node that was registered in the catalog."""
        return self._nodes.get(name)

    def nodes(self) -> Collection[RegisteredNode]:
        """All nodes that were registered in the catalog."""
        return self._nodes.values()

    def on_node(self, name: str) -> list[Registration]:
        """The registrations on a node."""
        return [self._registrations[Key(name, id)] for id in self._on_node.get(name, ())]

    def services(self) -> Collection[str]:
        """The names of all services."""
        return self._of_service.keys()

    def count(self, service: str) -> int:
        """The number of instances of a service."""
        return len(self._of_service.get(service, ()))

    def instances(self, service: str) -> tuple[Instance, ...]:
        """The instances of a service, for the catalog."""
        return tuple(self._instance(key) for key in self._of_service.get(service, ()))

    def at(self, key: Key) -> Registered | None:
        """The registration or the node of a key."""
        return self._registrations.get(key) if key.id else self._nodes.get(key.node)

    def owner(self, check: CheckKey) -> Registered | None:
        """The registration or the node that a check belongs to."""
        key = self._check_owners.get(check)
        return self.at(key) if key is not None else None

    # Changing

    def apply(self, edit: Edit) -> set[str]:
        """Apply an edit. Returns the services whose instances changed."""
        services: set[str] = set()
        for key in edit.delete:
            services |= self._remove(key)
        for one in edit.put:
            services |= self._put(one) if isinstance(one, Registration) else self._put_node(one)
        return services

    def _put(self, one: Registration) -> set[str]:
        previous = self._registrations.get(one.key)
        if previous == one:
            return set()
        services = {one.service}
        if previous is not None:
            self._forget_checks(previous)
            if previous.service != one.service:
                services |= self._remove_from_service(previous)
        self._registrations[one.key] = one
        self._on_node.setdefault(one.node, {})[one.id] = None
        self._of_service.setdefault(one.service, {})[one.key] = None
        self._check_owners.update((CheckKey(one.node, check.id), one.key) for check in one.checks)
        self._instances.pop(one.key, None)
        return services

    def _put_node(self, node: RegisteredNode) -> set[str]:
        previous = self._nodes.get(node.name)
        if previous == node:
            return set()
        if previous is not None:
            self._forget_checks(previous)
        self._nodes[node.name] = node
        self._check_owners.update((CheckKey(node.name, check.id), node.key) for check in node.checks)
        return self._forget_instances(node.name)

    def _remove(self, key: Key) -> set[str]:
        if not key.id:
            node = self._nodes.pop(key.node, None)
            if node is not None:
                self._forget_checks(node)
            return self._forget_instances(key.node)
        previous = self._registrations.pop(key, None)
        if previous is None:
            return set()
        self._forget_checks(previous)
        ids = self._on_node[key.node]
        del ids[key.id]
        if not ids:
            del self._on_node[key.node]
        self._instances.pop(key, None)
        return self._remove_from_service(previous)

    def _remove_from_service(self, one: Registration) -> set[str]:
        keys = self._of_service[one.service]
        del keys[one.key]
        if not keys:
            del self._of_service[one.service]
        return {one.service}

    def _forget_checks(self, one: Registered) -> None:
        for check in one.checks:
            key = CheckKey(one.key.node, check.id)
            if self._check_owners.get(key) == one.key:
                del self._check_owners[key]

    def _forget_instances(self, node: str) -> set[str]:
        """Forget the built instances on a node, whose address, meta or checks changed. Returns their services."""
        registrations = self.on_node(node)
        for one in registrations:
            self._instances.pop(one.key, None)
        return {one.service for one in registrations}

    def _instance(self, key: Key) -> Instance:
        instance = self._instances.get(key)
        if instance is None:
            one = self._registrations[key]
            instance = self._instances[key] = one.instance(self._nodes.get(key.node))
        return instance
