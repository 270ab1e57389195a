"""Recognises documents of other kinds that are given in place of a push, and names the command that is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from xds.codec import schema
from xds.codec.findings import json_pointer
from xds.model.errors import Violation
from xds.model.resource_type import TYPE_PREFIX

BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"
_DUMP = "envoy.admin.v3."
# Keys of a bootstrap that no other document has.
_OF_BOOTSTRAP = (
    *("static_resources", "staticResources", "dynamic_resources", "dynamicResources", "layered_runtime"),
    *("layeredRuntime", "cluster_manager", "clusterManager", "bootstrap_extensions", "bootstrapExtensions"),
)
_SHOWN = 80
_CONSUL_API = "consul.hashicorp.com/"
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def foreign_violation(document: object) -> Violation | None:
    """The error for a document that is an Envoy bootstrap, a config dump, a Kubernetes object or a config entry.

    None for any other document.
    """
    if not isinstance(document, dict) or "resources" in document:
        return None
    return next(_recognised(document), None)


def _recognised(document: Mapping[str, object]) -> Iterator[Violation]:
    if is_config_dump(document):
        hint = "xds convert FILE makes a snapshot and a bootstrap of it"
        yield _wrong("this is a config dump of Envoy (/config_dump), not a snapshot", "configs", hint)
    elif is_bootstrap(document):
        key = next((key for key in _OF_BOOTSTRAP if key in document), "")
        hint = "xds convert FILE makes a snapshot of its static resources, and a bootstrap that uses this server"
        yield _wrong("this is an Envoy bootstrap, not a snapshot", key, hint)
    elif "apiVersion" in document and "kind" in document:
        kind = str(document["kind"])[:_SHOWN]
        hint = consul_object_hint(document) or (
            "a push has Envoy resources; endpoints of Kubernetes Services come by a source (sources.kubernetes in the "
            "server's configuration), see xds sources"
        )
        yield _wrong(f"this is a Kubernetes object of kind {kind!r}, not a snapshot", "kind", hint)
    elif "Kind" in document or str(document.get("kind", "")).startswith("service-"):
        key = "Kind" if "Kind" in document else "kind"
        hint = "xds config-entry write -f FILE stores it"
        yield _wrong(f"this is a config entry of kind {str(document[key])[:_SHOWN]!r}, not a snapshot", key, hint)


def consul_object_hint(document: Mapping[str, object]) -> str:
    """What to write in place of an object of Consul's Kubernetes CRDs; empty for other documents."""
    if not str(document.get("apiVersion", "")).startswith(_CONSUL_API):
        return ""
    kind = _CAPITAL.sub("-", str(document.get("kind", ""))[:_SHOWN]).lower()
    metadata = document.get("metadata")
    name = str(metadata.get("name", "NAME"))[:_SHOWN] if isinstance(metadata, dict) else "NAME"
    return (
        f"write the fields of spec as a config entry, with Kind: {kind} and Name: {name} beside them in place of "
        "apiVersion, metadata and spec; xds config-entry write -f FILE stores it"
    )


def _wrong(detail: str, key: str, hint: str) -> Violation:
    return Violation("wrong_document", detail, pointer=json_pointer((key,)) if key else "", hint=hint)


def is_config_dump(document: Mapping[str, object]) -> bool:
    """True for the answer of Envoy's admin endpoint ``/config_dump``."""
    configs = document.get("configs")
    if not isinstance(configs, list):
        return False
    first = configs[0] if configs else {}
    return not configs or (isinstance(first, dict) and _DUMP in str(first.get("@type", "")))


def is_bootstrap(document: Mapping[str, object]) -> bool:
    """True for a document with a key that only bootstraps have, or whose keys are all of a bootstrap."""
    if str(document.get("@type", "")).removeprefix(TYPE_PREFIX) == BOOTSTRAP:
        return True
    if "@type" in document:
        return False
    if any(key in document for key in _OF_BOOTSTRAP):
        return True
    return bool(document) and _bootstrap_keys().issuperset(document) and bool({"admin", "node"} & set(document))


@cache
def _bootstrap_keys() -> frozenset[str]:
    """The fields of a bootstrap in both spellings."""
    fields = schema.require(BOOTSTRAP).DESCRIPTOR.fields
    return frozenset(name for field in fields for name in (field.name, field.json_name))
