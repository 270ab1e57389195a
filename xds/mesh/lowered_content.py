"""The lowered resources of a group's upstreams: the derived resources of the group (`xds.push.derived`). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from weakref import WeakValueDictionary

from xds.codec.record import blob_id, dump_record
from xds.codec.resources import ResourceDecoder
from xds.mesh.core.lower.lowered import Lowered, LoweredAssignment, LoweredResource, decode_lowered
from xds.mesh.core.lower.lowering import UpstreamChain
from xds.mesh.core.lower.upstreams import ProxySettings, Upstream
from xds.model.errors import Violation
from xds.model.resource_type import ENDPOINT
from xds.push.content import Key
from xds.push.derived import DerivedContent, DerivedOrigin, DerivedResource

_DIGEST_BYTES = 20
ENTRIES_NAMED = 5  # in a text


class LoweredRecords:
    """Makes records of lowered resources. Equal ones are decoded and checked once while a group has them."""

    def __init__(self, decoder: ResourceDecoder) -> None:
        self._decoder = decoder
        self._records: WeakValueDictionary[bytes, DerivedResource] = WeakValueDictionary()

    def of(self, lowered: LoweredResource) -> DerivedResource:
        """The record of a resource. Raises ``ValidationError`` with the places in the entries."""
        text = json.dumps([lowered.type_url, lowered.content], sort_keys=True).encode()
        key = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        record = self._records.get(key)
        if record is None:
            resource = replace(decode_lowered(lowered, self._decoder), is_lowered=True)
            record = self._records[key] = DerivedResource(resource, blob_id(dump_record(resource)))
        return record


@dataclass(frozen=True, slots=True)
class LoweredPart:
    """The ``lowered`` resources of one upstream, and the values that they depend on."""

    upstream: Upstream
    chain: UpstreamChain
    proxies: ProxySettings
    lowered: Lowered


@dataclass(frozen=True, slots=True, eq=False)
class LoweredContent(DerivedContent):
    """The lowered resources of a group.

    ``origins`` says where each resource comes from. ``assignments`` are those of the clusters. ``parts`` are by the
    name of the upstream.
    """

    assignments: Mapping[str, LoweredAssignment] = field(default_factory=dict)
    origins: Mapping[Key, LoweredResource] = field(default_factory=dict)
    parts: Mapping[str, LoweredPart] = field(default_factory=dict)
    warnings: tuple[Violation, ...] = ()

    def origin(self, key: Key) -> DerivedOrigin:
        """The upstreams and the config entries that a resource or an assignment is lowered from."""
        lowered = self.origins.get(key) or (self.assignments.get(key[1]) if key[0] == ENDPOINT else None)
        upstreams = tuple(lowered.upstreams) if lowered is not None else ()
        entries = tuple(lowered.entries) if lowered is not None else ()
        hint = "change the config entries or the upstreams, or push under another name"
        return DerivedOrigin(_origin_text(upstreams, entries), hint, upstreams, entries)


def _origin_text(upstreams: Sequence[str], entries: Sequence[tuple[str, str]]) -> str:
    """Such as ``lowered from upstream 'web' by service-splitter/web``."""
    if not upstreams:
        return "lowered from the upstreams"
    named = ", ".join("/".join(each) for each in entries[:ENTRIES_NAMED])
    more = f" and {len(entries) - ENTRIES_NAMED} more" if len(entries) > ENTRIES_NAMED else ""
    by = f" by {named}{more}" if named else ""
    return f"lowered from upstream{'s' if len(upstreams) > 1 else ''} {' and '.join(map(repr, upstreams))}{by}"


NOTHING_LOWERED = LoweredContent()


def stored_content(stored: Mapping[Key, DerivedResource], lowered: LoweredContent) -> LoweredContent:
    """The ``stored`` resources of a group as its lowered ones; ``lowered`` itself if they are the same."""
    if {key: one.blob_id for key, one in stored.items()} == {key: one.blob_id for key, one in lowered.records.items()}:
        return lowered
    return replace(lowered, records=stored, parts={})  # without parts, so that all upstreams are lowered again
