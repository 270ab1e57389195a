"""A stream with two twins: what it does in a cohort is what it would do alone.

All inputs of the stream go to the twins too. The first twin has the state of its client for itself. The second is in
the cohort of the stream, and computes each step before the stream takes it. All three must return the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from xds.model.errors import RemoteProtocolError
from xds.model.snapshot import ResourceSet
from xds.proto import wire_pb2
from xds.protocol.clients import ClientTable
from xds.protocol.cohort import CohortStream
from xds.protocol.dialect import Variant
from xds.protocol.events import Event, Send
from xds.protocol.name_budget import NameBudgets
from xds.protocol.requests import Request, StreamLimits
from xds.protocol.stream import DiscoveryStream
from xds.snapshots.cache import SnapshotCache, View
from xds.snapshots.linger import Lingering
from xds.snapshots.responses import Response


class Shadow:
    """The clients that have a state for themselves, and the budgets of all twins."""

    def __init__(self, cache: SnapshotCache, clients: ClientTable, limits: StreamLimits) -> None:
        self.clients = ClientTable(cache, clients._rules)
        self.budgets = NameBudgets(limits.unknown_name_bytes)


_SHADOWS: WeakKeyDictionary[ClientTable, Shadow] = WeakKeyDictionary()
taken: list[int] = [0]  # steps that a stream took after its twin


def _spent(stream: DiscoveryStream) -> int:
    """What the streams of its connection have spent on names that no resource has."""
    budget = stream._budgets._by_peer.get(stream._peer)
    return budget._spent if budget is not None else 0


class TwinStream(CohortStream):
    """A stream in a cohort, with its twins."""

    __slots__ = ("_alone", "_nonces", "_second", "_shadow")

    def __init__(self, *, clients: ClientTable, peer: str, budgets: Any = None, **settings: Any) -> None:
        super().__init__(clients=clients, peer=peer, budgets=budgets, **settings)
        cohorts = settings.pop("cohorts")
        if clients not in _SHADOWS:
            _SHADOWS[clients] = Shadow(settings["cache"], clients, self._limits)
        self._shadow = shadow = _SHADOWS[clients]
        shadow.clients.rejected = {node: dict(each) for node, each in clients.rejected.items()}
        shadow.clients._followed = dict(clients._followed)
        self._alone = DiscoveryStream(clients=shadow.clients, peer=peer, budgets=shadow.budgets, **settings)
        self._second = CohortStream(
            cohorts=cohorts, clients=clients, peer=f"{peer} twin", budgets=shadow.budgets, **settings
        )
        self._nonces: dict[str, tuple[str, str]] = {}  # of a response: those of its twins

    def _each(self, step: Callable[[Any, int], list[Event]]) -> list[Event]:
        told: list[Any] = []
        twins = (self._alone, self._second, super())
        before = self._cohort
        for number, twin in enumerate(twins):
            try:
                told.append(step(twin, number))
            except RemoteProtocolError as error:
                told.append(error)
        taken[0] += before is not None and self._cohort is not None and self._cohort is self._second._cohort
        *others, mine = told
        if isinstance(mine, RemoteProtocolError):
            assert all(str(each) == str(mine) for each in others), told
            raise mine
        for number, other in enumerate(others):
            self._compare(number, other, mine)
        self._compare_states()
        return list(mine)

    def _compare(self, number: int, other: list[Event], mine: list[Event]) -> None:
        assert [*map(type, other)] == [*map(type, mine)], f"twin {number}"
        for its, own in zip(other, mine, strict=True):
            if isinstance(own, Send) and isinstance(its, Send):
                nonces = self._nonces.setdefault(own.nonce, (own.nonce, own.nonce))
                self._nonces[own.nonce] = (its.nonce, nonces[1]) if not number else (nonces[0], its.nonce)
        names = {nonces[number]: nonce for nonce, nonces in self._nonces.items()}
        for its, own in zip(other, mine, strict=True):
            if its != own:
                variant = self._dialect.variant
                assert _plain(its, names, variant) == _plain(own, {}, variant), f"twin {number}: {its}, not {own}"

    def _compare_states(self) -> None:
        for twin in (self._alone, self._second):
            assert twin.status() == super().status()
            assert twin.deadline() == super().deadline()
            assert (twin.group, twin.is_at_rest, twin.view) == (self.group, self.is_at_rest, self.view)
            assert twin.unknown_names_cost() == super().unknown_names_cost()
            assert _spent(twin) == _spent(self)

    def receive(self, request: Request, now_s: float) -> list[Event]:
        nonces = (*self._nonces.get(request.nonce, (request.nonce, request.nonce)), request.nonce)
        return self._each(lambda twin, number: twin.receive(replace(request, nonce=nonces[number]), now_s))

    def offer(self, view: View | None, now_s: float) -> list[Event]:
        return self._each(lambda twin, number: twin.offer(view, now_s))

    def tick(self, now_s: float) -> list[Event]:
        return self._each(lambda twin, number: twin.tick(now_s))

    def end_lingering(self, now_s: float) -> list[Event]:
        return self._each(lambda twin, number: twin.end_lingering(now_s))

    def close(self, now_s: float) -> bool:
        was_in_transition = super().close(now_s)
        assert self._alone.close(now_s) is self._second.close(now_s) is was_in_transition
        return was_in_transition

    def resolve(self) -> View | None:
        view = super().resolve()
        assert self._alone.resolve() is view
        assert self._second.resolve() is view
        return view


def _plain(value: Any, nonces: Mapping[str, str], variant: Variant) -> Any:
    """What two equal events have in common, though objects differ in them and responses have nonces of their own."""
    if isinstance(value, ResourceSet):
        return (value.type, value.version_info, {name: each.version for name, each in value.resources.items()})
    if isinstance(value, Send):
        message = wire_pb2.DiscoveryResponse if variant is Variant.SOTW else wire_pb2.DeltaDiscoveryResponse
        body = message.FromString(value.body)
        body.nonce = nonces.get(body.nonce, body.nonce)
        return (value.type_url, body.SerializeToString(deterministic=True))
    if isinstance(value, Response):
        return (value.names, value.removed, _plain(value.resource_set, nonces, variant))
    if isinstance(value, Lingering):
        return [(each.revision, dict(each.names), each.ends_s) for each in value.removals]
    if isinstance(value, str):
        return nonces.get(value, value)
    if isinstance(value, tuple):
        return [_plain(each, nonces, variant) for each in value]
    if is_dataclass(value):
        return [_plain(getattr(value, field.name), nonces, variant) for field in fields(value)]
    return value
