"""Reads single resources: from JSON values or serialized messages to checked, canonical `Resource` objects.

A `ResourceReader` reads the resources of one push and collects the findings of all of them. What a ``Resource`` wrapper
states (name, aliases, TTL) is kept beside the message; virtual hosts get their aliases here
(docs/internals/clients.md#envoy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import ref

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from xds.codec import schema
from xds.codec.address_rules import check_assignment
from xds.codec.crosscheck import check_size
from xds.codec.effort import check_effort
from xds.codec.findings import Findings
from xds.codec.naming import (
    NAME_KEY,
    TYPE_KEY,
    VALUE_KEY,
    aliases_of,
    is_named_by_wrapper,
    name_field,
    name_of,
    text_field,
    to_seconds,
)
from xds.codec.parse import MessageParser, is_type_url
from xds.codec.redaction import check_not_redacted
from xds.codec.references import first_check_of, references_of
from xds.codec.validate import check_constraints
from xds.codec.validate_fast import FastValidator
from xds.codec.walk import make_canonical
from xds.model.names import canonical_name
from xds.model.resource import Resource, content_version
from xds.model.resource_type import ENDPOINT, TYPE_PREFIX
from xds.model.text_flaws import CODE, flaw_of

NAME_LIMIT = 2048  # bytes: an index of PostgreSQL holds some 2,600
# Every type URL has a slash: a message without one in its bytes holds no ``Any`` and need not be searched for them.
# An ``Any`` whose type URL has no slash keeps the bytes it came with.
_ANY_MARK = b"/"
# Fields of a wrapper that are not stored: they are refused rather than lost silently.
_UNSUPPORTED_FIELDS = ("cache_control", "metadata")


_WRAPPERS = (schema.WRAPPER_TYPE, "envoy.api.v2.Resource")


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """What the reader knows of a resource's type, determined once per type.

    ``type_url`` has the prefix that clients use; ``message_class`` is None for a type that is not in the schema.
    ``text_field`` is the field that holds the name, None where there is none. Types that are named by their wrapper
    (virtual hosts) have aliases.
    """

    type_url: str
    message_class: type[Any] | None = None
    text_field: str | None = None
    is_wrapper: bool = False
    is_named_by_wrapper: bool = False


def type_info(type_url: str) -> TypeInfo:
    """The facts about a type URL, whatever its prefix."""
    message = schema.descriptor(type_url)
    return TypeInfo(type_url) if message is None else _type_info(message)


@cache
def _type_info(descriptor: Descriptor) -> TypeInfo:
    type_url = TYPE_PREFIX + descriptor.full_name  # clients know the types of the schema by this prefix only
    return TypeInfo(
        type_url,
        message_factory.GetMessageClass(descriptor),
        text_field(type_url, descriptor),
        descriptor.full_name in _WRAPPERS,
        is_named_by_wrapper(type_url),
    )


class _CachedResource(ref[Resource]):
    """A weak reference with its key. ``WeakValueDictionary`` does the same in Python, and takes twice the time."""

    __slots__ = ("key",)
    key: tuple[str, bytes]


class ResourceCache:
    """Resources by type URL and canonical bytes, as long as a snapshot or another holder keeps them alive.

    A snapshot that is pushed again is mostly unchanged: reading an unchanged resource takes 24 us with the cache, and
    54 us without it. Only resources that their bytes determine and that have no findings are kept: reading them again
    would give an equal object. Safe to use from several threads.
    """

    __slots__ = ("_on_release", "_resources")

    def __init__(self) -> None:
        self._resources: dict[tuple[str, bytes], _CachedResource] = {}
        self._on_release = self._forget  # one bound method for all references

    def get(self, type_url: str, body: bytes) -> Resource | None:
        """The resource that was read from these canonical bytes before."""
        cached = self._resources.get((type_url, body))
        return None if cached is None else cached()

    def add(self, resource: Resource) -> None:
        """Remember a resource as long as another holder keeps it alive."""
        cached = _CachedResource(resource, self._on_release)
        cached.key = resource.type_url, resource.body
        self._resources[cached.key] = cached

    def _forget(self, cached: ref[Resource]) -> None:
        """Called, from any thread, when the last holder of a resource is gone.

        A newer resource with the same bytes keeps its entry. One that is added between the two lines loses it, and
        will be read again.
        """
        assert isinstance(cached, _CachedResource)
        if self._resources.get(cached.key) is cached:
            self._resources.pop(cached.key, None)


@dataclass(frozen=True, slots=True)
class WrapperFields:
    """What the wrapper of a resource states; ``base`` is the path of the message within the wrapper."""

    name: str = ""
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    base: tuple[str, ...] = ()


_NO_WRAPPER = WrapperFields()


class ResourceReader:
    """Reads the resources of one push and collects the findings of all of them.

    ``may_hold_redacted``: the input may hold a redacted value, which is refused. ``resources`` and ``validator`` belong
    to the server; without them every resource is read and checked in full.
    """

    def __init__(
        self,
        findings: Findings,
        resource_limit: int,
        resources: ResourceCache | None = None,
        validator: FastValidator | None = None,
    ) -> None:
        self.may_hold_redacted = True
        self._findings = findings
        self._limit = resource_limit
        self._messages = MessageParser(findings)
        self._types: dict[str, TypeInfo] = {}
        self._cache = resources
        self._is_surely_valid = None if validator is None else validator.is_surely_valid

    def read_all(self, items: Iterable[Any], read: Callable[[Any], Resource | None]) -> dict[int, Resource]:
        """The resources by position, without those that have errors."""
        resources = {}
        for index, item in enumerate(items):
            check_effort()
            self._findings.select_resource(index)
            resource = read(item)
            if resource is not None:
                resources[index] = resource
        self._findings.index = -1
        return resources

    def value(self, value: object, name: str = "") -> Resource | None:
        """Read a resource from plain values; ``name`` is used for a type without a name field."""
        if not isinstance(value, dict):
            self._findings.add("wrong_type", "a resource is an object with @type")
            return None
        type_url = value.get(TYPE_KEY)
        if not isinstance(type_url, str) or not is_type_url(type_url):
            hint = f'"{TYPE_KEY}": "{TYPE_PREFIX}<message name>"'
            self._findings.add("missing_type", "a resource needs an @type", hint=hint)
            return None
        self._label(type_url, value)
        if self.may_hold_redacted:
            before = len(self._findings)
            check_not_redacted(value, self._findings)
            if len(self._findings) > before:
                return None
        if VALUE_KEY in value:
            return self._opaque_value(type_url, value, name)
        return self._message_value(type_url, value, name)

    def _label(self, type_url: str, value: Mapping[str, object]) -> None:
        """Name the resource in its findings, if its name can be read before the message is parsed."""
        key = name_field(type_url)
        name = value.get(NAME_KEY, value.get(key, value.get("clusterName" if key == "cluster_name" else key)))
        if isinstance(name, str) and name:
            self._findings.name_resource(type_url, name[:NAME_LIMIT])

    def _message_value(self, type_url: str, value: dict[str, object], name: str) -> Resource | None:
        info = self._type_info(type_url)
        if info.message_class is None:
            self._messages.unknown_type(type_url)
            return None
        before, message = len(self._findings), info.message_class()
        if info.is_wrapper:
            return self._wrapper_value(message, value)
        self._messages.read(message, value, frozenset((TYPE_KEY,)))
        body = self._messages.pack(message)
        if len(self._findings) > before:
            check_constraints(message, self._findings, is_partial=True)
            return None
        wrapper_fields = WrapperFields(name) if name and not name_of(type_url, message) else _NO_WRAPPER
        cached = self._cached(info.type_url, body) if wrapper_fields is _NO_WRAPPER else None
        return cached or self._resource(info, body, message, wrapper_fields)

    def _opaque_value(self, type_url: str, value: dict[str, object], name: str) -> Resource | None:
        before = len(self._findings)
        given = value.get(NAME_KEY, name)
        if not isinstance(given, str):
            self._findings.add("wrong_type", "a name is a string", (NAME_KEY,))
        body = self._messages.opaque(type_url, value, frozenset((NAME_KEY,)))
        if len(self._findings) > before:
            return None
        return self.packed(type_url, body, WrapperFields(str(given)))

    def _wrapper_value(self, wrapper: Any, value: dict[str, object]) -> Resource | None:
        before = len(self._findings)
        self._messages.read(wrapper, value, frozenset((TYPE_KEY,)))
        return None if len(self._findings) > before else self._unwrap(wrapper)

    def packed(self, type_url: str, body: bytes, wrapper_fields: WrapperFields | None = None) -> Resource | None:
        """Read a resource from its serialized message."""
        if "/" not in type_url or flaw_of(type_url) or len(type_url.encode()) > NAME_LIMIT:
            self._findings.add("missing_type", f"{type_url[:200]!r} is not a type URL")
            return None
        info = self._type_info(type_url)
        if wrapper_fields is not None and info.is_wrapper:
            self._findings.add("unsupported_type", "a wrapper cannot hold a wrapper")
            return None
        if info.message_class is None:
            return self._resource(info, body, None, wrapper_fields or _NO_WRAPPER)
        cached = self._cached(info.type_url, body) if wrapper_fields is None else None
        return cached or self._parsed(type_url, info, body, wrapper_fields or _NO_WRAPPER)

    def _parsed(self, type_url: str, info: TypeInfo, body: bytes, wrapper_fields: WrapperFields) -> Resource | None:
        assert info.message_class is not None
        try:
            message = info.message_class.FromString(body)
            if info.is_wrapper:
                return self._unwrap(message)
            if _ANY_MARK in body:
                make_canonical(message)
            canonical = message.SerializeToString(deterministic=True)
        except (DecodeError, EncodeError, RecursionError):
            self._findings.add("malformed", f"not the bytes of a {type_url[:200]}")
            return None
        is_unseen = wrapper_fields is _NO_WRAPPER and canonical != body  # the cache was asked for ``body`` before
        cached = self._cached(info.type_url, canonical) if is_unseen else None
        return cached or self._resource(info, canonical, message, wrapper_fields)

    def _unwrap(self, wrapper: Any) -> Resource | None:
        before = len(self._findings)
        for name in _UNSUPPORTED_FIELDS:
            if name in wrapper.DESCRIPTOR.fields_by_name and wrapper.HasField(name):
                self._findings.add("unsupported_field", f"{name} of a resource wrapper is not supported", (name,))
        if not wrapper.resource.type_url:
            self._findings.add("missing_field", "a resource wrapper without a resource", ("resource",))
        wrapper_fields = WrapperFields(wrapper.name, tuple(wrapper.aliases), self._ttl(wrapper), ("resource",))
        if len(self._findings) > before:
            return None
        return self.packed(wrapper.resource.type_url, wrapper.resource.value, wrapper_fields)

    def _ttl(self, wrapper: Any) -> float | None:
        if "ttl" not in wrapper.DESCRIPTOR.fields_by_name or not wrapper.HasField("ttl"):
            return None
        ttl_s = to_seconds(wrapper.ttl)
        if ttl_s <= 0:
            self._findings.add("out_of_range", "a TTL must be above zero", ("ttl",))
        return ttl_s

    def _resource(
        self, info: TypeInfo, body: bytes, message: Message | None, wrapper_fields: WrapperFields
    ) -> Resource | None:
        findings = self._findings
        before, warned = len(findings.violations), len(findings.warnings)
        type_url, name = info.type_url, self._name(info, message, wrapper_fields)
        if name:
            findings.name_resource(type_url, name)
        check_size(body, self._limit, findings)
        is_surely_valid = self._is_surely_valid
        if message is not None and (is_surely_valid is None or not is_surely_valid(message.DESCRIPTOR, body, message)):
            findings.base = wrapper_fields.base
            check_constraints(message, findings)
            findings.base = ()
        if type_url == ENDPOINT and len(findings.violations) == before:
            findings.base = wrapper_fields.base
            check_assignment(message, body, findings)
            findings.base = ()
        if len(findings.violations) > before:
            return None
        derived = aliases_of(type_url, name, message) if info.is_named_by_wrapper else ()
        aliases = tuple(dict.fromkeys((*derived, *wrapper_fields.aliases))) if derived or wrapper_fields.aliases else ()
        version = content_version(body, aliases, wrapper_fields.ttl_s)
        references = () if message is None else references_of(type_url, message, body)
        first_check_s = 0.0 if message is None else first_check_of(type_url, message)
        resource = Resource(type_url, name, body, version, aliases, wrapper_fields.ttl_s, references, first_check_s)
        is_determined = wrapper_fields is _NO_WRAPPER and message is not None and len(findings.warnings) == warned
        if is_determined and self._cache is not None:
            self._cache.add(resource)
        return resource

    def _type_info(self, type_url: str) -> TypeInfo:
        info = self._types.get(type_url)
        if info is None:
            info = self._types[type_url] = type_info(type_url)
        return info

    def _cached(self, type_url: str, body: bytes) -> Resource | None:
        """The resource that was read from these bytes before."""
        cached = self._cache.get(type_url, body) if self._cache is not None else None
        if cached is not None:
            self._findings.name_resource(type_url, cached.name)
        return cached

    def _name(self, info: TypeInfo, message: Message | None, wrapper_fields: WrapperFields) -> str:
        """The canonical name; a name with findings is returned too."""
        own = "" if info.text_field is None else getattr(message, info.text_field)
        given = wrapper_fields.name or own
        name = canonical_name(given)
        pointer = (info.text_field or NAME_KEY,)
        if not given:
            self._findings.add("missing_name", "a resource needs a name", pointer)
        elif flaw := flaw_of(given):
            self._findings.add(CODE, flaw, pointer)
        elif (size := len(given.encode())) > NAME_LIMIT:
            self._findings.add("too_large", f"a name of {size} bytes; the limit is {NAME_LIMIT}", pointer)
        elif given is not own and own and not info.is_named_by_wrapper and name != canonical_name(own):
            self._findings.add("name_mismatch", f"wrapped as {given[:80]!r} but named {own[:80]!r}", pointer)
        return name
