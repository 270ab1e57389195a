"""What one source has shown of one service, as it is stored: JSON. Defaults are left out."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from xds.catalog.draining import Drained, SeenInstance
from xds.catalog.holding import ServiceHolding
from xds.catalog.instance import NOWHERE, Check, Health, Instance, require_instance
from xds.model.errors import ValidationError
from xds.model.node import Locality

Json = dict[str, Any]

REMEMBERED_FROM = 200  # instances of a service
REMEMBERED = 100_000  # instances, of all services

_dump = json.JSONEncoder(separators=(",", ":")).encode
_NONE_PRESENT = '"present":[]'
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_shared_locality = lru_cache(4096)(Locality)  # one object for all equal ones


class HoldingEncoder:
    """Encodes holdings. Instances of large ones are remembered as text: only those that have changed are encoded.

    A holding is large from ``remembered_from`` instances on. ``limit`` instances are remembered at most, those of the
    latest holdings, and always those of the last one.
    """

    def __init__(self, remembered_from: int = REMEMBERED_FROM, limit: int = REMEMBERED) -> None:
        self._remembered_from = remembered_from
        self._limit = limit
        self._texts: OrderedDict[Hashable, dict[int, tuple[SeenInstance, str]]] = OrderedDict()
        self._remembered_n = 0

    def encoded(self, key: Hashable, holding: ServiceHolding) -> bytes:
        """The stored form of a holding. ``key`` is its own."""
        document: Json = {"present": []}
        if holding.is_held:
            document["kept"] = [_seen_json(seen) for seen in holding.kept.values()]
            document |= {"late": holding.late, "good_n": holding.good_n, "held_since": holding.held_since}
        if holding.draining:
            document["draining"] = [{**_seen_json(one.seen), "until": one.until} for one in holding.draining]
        document |= {name: True for name in ("was_shown", "is_gone") if getattr(holding, name)}
        present = ",".join(self._present(key, list(holding.present.values())))
        return _dump(document).replace(_NONE_PRESENT, f'"present":[{present}]', 1).encode()

    def _present(self, key: Hashable, present: list[SeenInstance]) -> Iterator[str]:
        before = self._texts.pop(key, {})
        self._remembered_n -= len(before)
        if len(present) < self._remembered_from:
            return (_dump(_seen_json(seen)) for seen in present)
        # What was seen is what it was as long as it is the same object, which is kept alive here.
        pairs = [before.get(id(seen)) or (seen, _dump(_seen_json(seen))) for seen in present]
        self._remember(key, dict(zip(map(id, present), pairs, strict=True)))
        return (text for _, text in pairs)

    def _remember(self, key: Hashable, texts: dict[int, tuple[SeenInstance, str]]) -> None:
        self._texts[key] = texts
        self._remembered_n += len(texts)
        while self._remembered_n > self._limit and len(self._texts) > 1:
            _, oldest = self._texts.popitem(last=False)
            self._remembered_n -= len(oldest)


def decoded(body: bytes) -> ServiceHolding:
    """The holding of a stored form. Raises ``ValueError`` for one that this release cannot read."""
    try:
        return _holding(json.loads(body))
    except (TypeError, KeyError, AttributeError, ValidationError) as error:
        raise ValueError(f"a record of a service that cannot be read: {error!r:.200}") from error


def _holding(document: Json) -> ServiceHolding:
    holding = ServiceHolding()
    holding.restore(map(_seen, document["present"]))
    if "kept" in document:
        kept = map(_seen, document["kept"])
        holding.restore_loss(kept, document["late"], int(document["good_n"]), float(document["held_since"]))
    for one in document.get("draining", ()):
        holding.draining.restore(Drained(_seen(one), float(one["until"])))
    holding.was_shown, holding.is_gone = "was_shown" in document, "is_gone" in document
    return holding


def _seen_json(seen: SeenInstance) -> Json:
    return {"since": seen.since, "changed_at": seen.changed_at, **_instance_json(seen.instance)}


def _seen(document: Json) -> SeenInstance:
    return SeenInstance(_instance(document), float(document["since"]), float(document["changed_at"]))


def _instance_json(one: Instance) -> Json:
    where = one.locality
    found: Json = {
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
    return own | {name: value for name, value in found.items() if value}


def _instance(document: Json) -> Instance:
    weight, warning_weight = document.get("weights", (1, 1))
    return require_instance(
        Instance(
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
    )


def _frozen(document: Json, name: str) -> Mapping[str, Any]:
    return document.get(name) or _NOTHING


def _check_json(check: Check) -> Json:
    texts = {"name": check.name, "kind": check.kind, "output": check.output, "notes": check.notes}
    return {"id": check.id, "status": check.status.value} | {name: text for name, text in texts.items() if text}


def _check(document: Json) -> Check:
    texts = {name: document.get(name, "") for name in ("name", "kind", "output", "notes")}
    return Check(document["id"], Health(document["status"]), **texts)
