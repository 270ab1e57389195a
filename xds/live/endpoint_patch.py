"""A change of some endpoints of an assignment, in JSON: the body of ``PATCH /groups/{g}/endpoints/{name}``.

``{"put": [{"address", "weight"?, "health"?, "locality"?, "priority"?, "hostname"?}, ...], "remove": [address, ...],
"localities": [{"locality", "priority"?, "weight"}, ...]}``
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xds.codec.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT
from xds.live.assignment_edits import (
    EndpointChange,
    canonical_address,
    change_endpoints,
    change_weights,
    empty_assignment,
    remove_endpoints,
)
from xds.live.by_hand import EditResult
from xds.live.draining import HEALTH_NAMES, DrainingEndpoint, undrain
from xds.model.errors import ValidationError, Violation
from xds.model.ip_address import is_ip_address
from xds.model.node import Locality
from xds.model.resource import Resource

CHANGES_LIMIT = 10_000
TEXT_LIMIT = 1024
_PORT_LIMIT = 65_535
_FIELDS = ("put", "remove", "localities")
_PUT_FIELDS = ("address", "weight", "health", "locality", "priority", "hostname")
_LOCALITY_FIELDS = ("locality", "priority", "weight")
_PARTS = ("region", "zone", "sub_zone")


@dataclass(frozen=True, slots=True)
class EndpointPatch:
    """Endpoints to add or change, addresses to remove, and weights by locality and priority."""

    put: tuple[EndpointChange, ...] = ()
    remove: frozenset[str] = frozenset()
    weights: Mapping[tuple[Locality, int], int] = field(default_factory=dict)

    def apply(self, name: str, present: Resource | None, draining: tuple[DrainingEndpoint, ...]) -> EditResult:
        """Apply the patch to an assignment, or to an empty one. A draining endpoint that is put is restored first.

        Raises ``ValidationError``.
        """
        wanted = present if present is not None else empty_assignment(name)
        added = {change.address for change in self.put}
        if any(one.address in added for one in draining):
            wanted = undrain(wanted, draining, added)
        if self.put:
            wanted = change_endpoints(wanted, self.put)
        if self.weights:
            wanted = change_weights(wanted, self.weights)
        if self.remove:
            wanted = remove_endpoints(wanted, self.remove)
        return EditResult(wanted, self.remove)


def read_patch(document: object) -> EndpointPatch:
    """A patch from JSON. Raises ``ValidationError`` with all errors and their places."""
    reader = _Reader()
    patch = reader.patch(document)
    if reader.findings:
        raise ValidationError(reader.findings)
    return patch


class _Reader:
    def __init__(self) -> None:
        self.findings: list[Violation] = []

    def patch(self, document: object) -> EndpointPatch:
        fields = self._object(document, "", _FIELDS)
        put = tuple(self._change(one, f"/put/{at}") for at, one in enumerate(self._list(fields, "put")))
        addresses = enumerate(self._list(fields, "remove"))
        removed = frozenset(canonical_address(self._text(one, f"/remove/{at}")) for at, one in addresses)
        weights = [self._weight(one, f"/localities/{at}") for at, one in enumerate(self._list(fields, "localities"))]
        if not (put or removed or weights or self.findings):
            self._add("empty", "nothing to change: give put, remove or localities", "")
        both = sorted(removed.intersection(change.address for change in put))
        for address in both:
            self._add("conflict", f"{address} is to be put and to be removed", "/remove")
        return EndpointPatch(put, removed, dict(weights))

    def _change(self, value: object, pointer: str) -> EndpointChange:
        fields = self._object(value, pointer, _PUT_FIELDS)
        locality = self._locality(fields["locality"], f"{pointer}/locality") if "locality" in fields else None
        hostname = self._text(fields["hostname"], f"{pointer}/hostname") if "hostname" in fields else None
        return EndpointChange(
            self._address(fields.get("address"), f"{pointer}/address"),
            self._number(fields, "weight", pointer, 1, WEIGHT_SUM_LIMIT),
            self._health(fields, pointer),
            locality,
            self._number(fields, "priority", pointer, 0, PRIORITY_LIMIT),
            hostname,
        )

    def _weight(self, value: object, pointer: str) -> tuple[tuple[Locality, int], int]:
        fields = self._object(value, pointer, _LOCALITY_FIELDS)
        weight = self._number(fields, "weight", pointer, 1, WEIGHT_SUM_LIMIT)
        if fields.get("weight") is None:
            self._add("missing", "a weight is needed", f"{pointer}/weight")
        locality = self._locality(fields.get("locality", {}), f"{pointer}/locality")
        return (locality, self._number(fields, "priority", pointer, 0, PRIORITY_LIMIT) or 0), weight or 1

    def _address(self, value: object, pointer: str) -> str:
        text = self._text(value, pointer)
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        is_port = port.isascii() and port.isdigit() and port == str(int(port)) and 0 < int(port) <= _PORT_LIMIT
        if not (colon and is_port and is_ip_address(bare) and (":" in bare) == (bare != host)):
            self._add("invalid_address", f"{text[:100]!r} is not an address: 10.0.0.1:80 or [::1]:80", pointer)
        return canonical_address(text)

    def _health(self, fields: Mapping[str, Any], pointer: str) -> int | None:
        value = fields.get("health")
        if value is None:
            return None
        name = value.upper() if isinstance(value, str) else ""
        if name not in HEALTH_NAMES:
            self._add("invalid_value", f"health is one of {', '.join(HEALTH_NAMES)}", f"{pointer}/health")
            return None
        return HEALTH_NAMES.index(name)

    def _locality(self, value: object, pointer: str) -> Locality:
        fields = self._object(value, pointer, _PARTS)
        return Locality(*(self._text(fields.get(part, ""), f"{pointer}/{part}") for part in _PARTS))

    def _number(self, fields: Mapping[str, Any], name: str, pointer: str, least: int, most: int) -> int | None:
        value = fields.get(name)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            self._add("invalid_value", f"{name} is an integer from {least} to {most}", f"{pointer}/{name}")
            return None
        return value

    def _text(self, value: object, pointer: str) -> str:
        if isinstance(value, str) and len(value) <= TEXT_LIMIT:
            return value
        self._add("wrong_type", f"expected a string of at most {TEXT_LIMIT} characters", pointer)
        return ""

    def _list(self, fields: Mapping[str, Any], name: str) -> list[Any]:
        value = fields.get(name, [])
        if isinstance(value, list) and len(value) <= CHANGES_LIMIT:
            return value
        self._add("wrong_type", f"{name} is a list with at most {CHANGES_LIMIT} items", f"/{name}")
        return []

    def _object(self, value: object, pointer: str, fields: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._add("wrong_type", f"expected an object with {', '.join(fields)}", pointer)
            return {}
        for name in value:
            if name not in fields:
                hint = f"the fields are {', '.join(fields)}"
                self._add("unknown_field", f"unknown field {name!r:.60}", f"{pointer}/{name!s:.60}", hint)
        return {name: one for name, one in value.items() if one is not None}

    def _add(self, code: str, detail: str, pointer: str, hint: str = "") -> None:
        if len(self.findings) < CHANGES_LIMIT:
            self.findings.append(Violation(code, detail, pointer=pointer, hint=hint))
