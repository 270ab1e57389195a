"""Open NACK records as bytes, for whoever keeps them across restarts. Bounded: clients choose names and texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate, takewhile

from xds.fleet.refusal import NAMES_LIMIT as NAMES_SHOWN
from xds.fleet.refusal import Refusal
from xds.fleet.state import NackRecord
from xds.model.resource_type import alias_of

MESSAGE_KEPT = 4096
NAMES_TEXT_KEPT = 64 * 1024  # characters


def encoded(refusal: Refusal) -> bytes:
    """What `decoded` needs besides the record's id, node and type."""
    record, versions = refusal.record, _bounded(refusal.refused_versions)
    document = {
        "group": record.group,
        "version": record.version,
        "nonce": record.nonce,
        "code": record.code,
        "message": record.message[:MESSAGE_KEPT],
        "first": record.first,
        "last": record.last,
        "count": record.count,
        "resources": record.resources,
        "versions": versions,
        "guilty": [name for name in refusal.guilty if name in versions],
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decoded(id: int, node: str, type_url: str, body: bytes) -> Refusal:
    """The refusal as it stood. Raises ``ValueError`` for what `encoded` did not make."""
    try:
        found = json.loads(body)
        versions = {str(name): str(version) for name, version in found["versions"].items()}
        guilty = tuple(str(name) for name in found["guilty"])
        record = NackRecord(
            id=id,
            node=node,
            group=str(found["group"]),
            type=alias_of(type_url),
            type_url=type_url,
            version=str(found["version"]),
            nonce=str(found["nonce"]),
            code=int(found["code"]),
            message=str(found["message"]),
            first=float(found["first"]),
            last=float(found["last"]),
            names=tuple(versions)[:NAMES_SHOWN],
            resources=int(found["resources"]),
            count=int(found["count"]),
            guilty=guilty[:NAMES_SHOWN],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no open NACK: {error!r}") from error
    return Refusal.restored(record, versions, guilty)


def _bounded(versions: Mapping[str, str]) -> dict[str, str]:
    pairs = list(versions.items())
    sizes = accumulate(len(name) + len(version) for name, version in pairs)
    fit = sum(1 for _ in takewhile(lambda size: size <= NAMES_TEXT_KEPT, sizes))
    return dict(pairs[:fit])
