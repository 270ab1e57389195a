"""The stored form of what one source has observed of one service: JSON without defaults."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from xds.model.errors import ValidationError
from xds.model.node import Locality
from xds.services.core.draining import ObservedInstance, socket_address
from xds.services.core.holding import ServiceHolding
from xds.services.core.instance import NOWHERE, Check, Health, Instance, check_instance

Json = dict[str, Any]

CACHED_FROM = 200  # instances of a service
CACHE_LIMIT = 100_000  # instances, of all services

_dump = json.JSONEncoder(separators=(",", ":")).encode
_NONE_PRESENT = '"present":[]'
_EMPTY: Mapping[str, Any] = MappingProxyType({})
_shared_locality = lru_cache(4096)(Locality)  # one object for all equal ones


class HoldingEncoder:
    """Encodes holdings. The texts of instances of large holdings are cached, so that only changed ones are encoded.

    A holding is large from ``cached_from`` instances on. The texts of at most ``limit`` instances are cached, those of
    the latest holdings; those of the last holding always.
    """

    def __init__(self, cached_from: int = CACHED_FROM, limit: int = CACHE_LIMIT) -> None:
        self._cached_from = cached_from
        self._limit = limit
        self._texts: OrderedDict[Hashable, dict[int, tuple[ObservedInstance, str]]] = OrderedDict()
        self._cached_n = 0

    def encoded(self, key: Hashable, holding: ServiceHolding) -> bytes:
        """The stored form of a holding, which ``key`` identifies."""
        document: Json = {"present": []}
        if holding.is_held:
            document["kept"] = [_observed_json(observed) for observed in holding.lost.values()]
            document |= {"late": holding.late, "good_n": holding.good_n, "held_since": holding.held_since}
        if holding.draining:
            document["draining"] = [{**_observed_json(one), "until": until} for _, one, until in holding.draining]
        document |= {name: True for name in ("was_shown", "is_gone") if getattr(holding, name)}
        present = ",".join(self._present(key, list(holding.present.values())))
        return _dump(document).replace(_NONE_PRESENT, f'"present":[{present}]', 1).encode()

    def _present(self, key: Hashable, present: list[ObservedInstance]) -> Iterator[str]:
        before = self._texts.pop(key, {})
        self._cached_n -= len(before)
        if len(present) < self._cached_from:
            return (_dump(_observed_json(observed)) for observed in present)
        # The cached text is valid for the same object. The cache keeps the object alive, so that its id is not reused.
        pairs = [before.get(id(observed)) or (observed, _dump(_observed_json(observed))) for observed in present]
        self._cache(key, dict(zip(map(id, present), pairs, strict=True)))
        return (text for _, text in pairs)

    def _cache(self, key: Hashable, texts: dict[int, tuple[ObservedInstance, str]]) -> None:
        self._texts[key] = texts
        self._cached_n += len(texts)
        while self._cached_n > self._limit and len(self._texts) > 1:
            _, oldest = self._texts.popitem(last=False)
            self._cached_n -= len(oldest)


def decoded(body: bytes) -> ServiceHolding:
    """The holding of a stored form. Raises ``ValueError`` if this release cannot read it."""
    try:
        return _holding(json.loads(body))
    except (TypeError, KeyError, AttributeError, ValidationError) as error:
        raise ValueError(f"a record of a service that cannot be read: {error!r:.200}") from error


def _holding(document: Json) -> ServiceHolding:
    holding = ServiceHolding()
    holding.restore(map(_observed, document["present"]))
    if "kept" in document:
        lost = map(_observed, document["kept"])
        holding.restore_loss(lost, document["late"], int(document["good_n"]), float(document["held_since"]))
    for one in document.get("draining", ()):
        observed = _observed(one)
        holding.draining.begin(socket_address(observed.instance), observed, float(one["until"]))
    holding.was_shown, holding.is_gone = "was_shown" in document, "is_gone" in document
    return holding


def _observed_json(observed: ObservedInstance) -> Json:
    return {"since": observed.since, "changed_at": observed.changed_at, **_instance_json(observed.instance)}


def _observed(document: Json) -> ObservedInstance:
    return ObservedInstance(_instance(document), float(document["since"]), float(document["changed_at"]))


def _instance_json(one: Instance) -> Json:
    where = one.locality
    document: Json = {
        "ports": dict(one.ports),
        "meta": dict(one.meta),
        "tags": one.tags,
        "locality": (where.region, where.zone, where.sub_zone) if where != NOWHERE else (),
        "datacenter": one.datacenter,
        "node": one.node,
        "node_meta": dict(one.node_meta),
        "checks": [_check_json(check) for check in one.checks],
        "virtual_addresses": one.virtual_addresses,
    }
    own: Json = {"id": one.id, "address": one.address, "port": one.port}
    if (one.weight, one.warning_weight) != (1, 1):
        own["weights"] = (one.weight, one.warning_weight)
    return own | {name: value for name, value in document.items() if value}


def _instance(document: Json) -> Instance:
    weight, warning_weight = document.get("weights", (1, 1))
    one = Instance(
        document["id"],
        document["address"],
        document["port"],
        ports=_frozen(document, "ports"),
        meta=_frozen(document, "meta"),
        tags=tuple(document.get("tags", ())),
        weight=weight,
        warning_weight=warning_weight,
        locality=_shared_locality(*document["locality"]) if "locality" in document else NOWHERE,
        datacenter=document.get("datacenter", ""),
        node=document.get("node", ""),
        node_meta=_frozen(document, "node_meta"),
        checks=tuple(_check(each) for each in document.get("checks", ())),
        virtual_addresses=tuple(document.get("virtual_addresses", ())),
    )
    violations = check_instance(one)
    if violations:
        raise ValidationError(violations)
    return one


def _frozen(document: Json, name: str) -> Mapping[str, Any]:
    return document.get(name) or _EMPTY


def _check_json(check: Check) -> Json:
    texts = {"name": check.name, "kind": check.kind, "output": check.output, "notes": check.notes}
    return {"id": check.id, "status": check.status.value} | {name: text for name, text in texts.items() if text}


def _check(document: Json) -> Check:
    texts = {name: document.get(name, "") for name in ("name", "kind", "output", "notes")}
    return Check(document["id"], Health(document["status"]), **texts)
