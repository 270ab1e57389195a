"""Rules on values that are in Envoy's code and not in its .proto files.

All were measured with Envoy 1.40 (``python -m bench.mistakes``). They hold for the v3 API. Rules on single fields have
the form of those in the .proto files. Rules on whole messages are functions by type: see `cluster_rules`,
`extension_rules`, `filter_rules`, `format_rules`, `route_rules`, `source_rules` and `tls_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from xds.codec.cluster_rules import CLUSTER_FIELD_RULES, CLUSTER_RULES
from xds.codec.extension_rules import EXTENSION_FIELD_RULES, EXTENSION_RULES
from xds.codec.filter_rules import FILTER_RULES
from xds.codec.format_rules import FORMAT_FIELD_RULES, FORMAT_RULES, IGNORED_CODES
from xds.codec.route_rules import ROUTE_FIELD_RULES, ROUTE_RULES
from xds.codec.rules import MessageRule
from xds.codec.source_rules import SOURCE_FIELD_RULES
from xds.codec.tls_rules import TLS_FIELD_RULES, TLS_RULES
from xds.codec.walk import ANY
from xds.proto import field_options
from xds.proto.field_options import Rules

DURATION = "google.protobuf.Duration"

_REQUIRED: Rules = {"message": {"required": True}}
_IP: Rules = {"string": {"ip": True}}
_REGEX: Rules = {"string": {"regex": True}}
_LOWER_BOUNDS = frozenset(("gt", "gte", "const", "in"))
_NOT_NEGATIVE: Rules = {"duration": {"gte": "0s"}}
# Envoy refuses several drops: "Cluster drop_overloads config has 2 categories. Envoy only support one."
_OF_FIELDS: Mapping[str, Mapping[str, Rules]] = {
    "envoy.config.cluster.v3.LoadBalancingPolicy": {"policies": _REQUIRED},
    "envoy.config.core.v3.CidrRange": {"address_prefix": _IP},
    "envoy.config.endpoint.v3.ClusterLoadAssignment.Policy": {"drop_overloads": {"repeated": {"max_items": 1}}},
    "envoy.config.cluster.v3.LoadBalancingPolicy.Policy": {"typed_extension_config": _REQUIRED},
    "envoy.type.matcher.v3.RegexMatcher": {"regex": _REGEX},
    "xds.type.matcher.v3.RegexMatcher": {"regex": _REGEX},
}
_OF_MESSAGES: Mapping[str, MessageRule] = {
    **CLUSTER_RULES,
    **EXTENSION_RULES,
    **FILTER_RULES,
    **FORMAT_RULES,
    **ROUTE_RULES,
    **TLS_RULES,
}
_OF_VALUES: dict[str, dict[str, MessageRule]] = {}
for _rules in (
    CLUSTER_FIELD_RULES,
    EXTENSION_FIELD_RULES,
    FORMAT_FIELD_RULES,
    ROUTE_FIELD_RULES,
    SOURCE_FIELD_RULES,
    TLS_FIELD_RULES,
):
    for _type, _fields in _rules.items():
        _OF_VALUES.setdefault(_type, {}).update(_fields)
# Types that Envoy loads, without those of its responses, logs and reports.
_CONFIGURATION = re.compile(r"envoy\.(config|extensions|type)\.(\w+\.)*v3(alpha)?\.")
# A field that may hold any type, even one that Envoy does not know.
_ANY_TYPE = frozenset(("typed_filter_metadata",))
_OPTIONAL_HOLDERS = frozenset(
    (
        "envoy.config.route.v3.FilterConfig",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
    )
)


@cache
def field_rules(descriptor: Descriptor) -> Mapping[str, Rules]:
    """The rules of a type's fields by field name: those of the .proto files and those of Envoy's code."""
    of_field = dict(field_options.rules(descriptor.full_name))
    for name, rules in _OF_FIELDS.get(descriptor.full_name, {}).items():
        of_field[name] = _joined(of_field.get(name, {}), rules)
    if _CONFIGURATION.match(descriptor.full_name):
        for field in descriptor.fields:
            bounds = of_field.get(field.name, {}).get("duration", {})
            if _is_duration(field) and _LOWER_BOUNDS.isdisjoint(bounds):
                of_field[field.name] = _joined(of_field.get(field.name, {}), _NOT_NEGATIVE)
    return of_field


def _joined(one: Rules, other: Rules) -> Rules:
    return {kind: {**one.get(kind, {}), **other.get(kind, {})} for kind in (*one, *other)}


def _is_duration(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == DURATION and not field.is_repeated


def message_rule(descriptor: Descriptor) -> MessageRule | None:
    """The rule on whole messages of a type; None where there is none."""
    return _OF_MESSAGES.get(descriptor.full_name)


def value_rule(descriptor: Descriptor, field: FieldDescriptor) -> MessageRule | None:
    """The rule on the whole value of a field, such as a list; it applies only where the field is set."""
    return _OF_VALUES.get(descriptor.full_name, {}).get(field.name)


def ignored_codes(descriptor: Descriptor, field: FieldDescriptor) -> frozenset[str]:
    """The codes of the findings within a field that do not count; empty for almost every field."""
    return IGNORED_CODES.get(descriptor.full_name, {}).get(field.name, frozenset())


def ruled_types() -> frozenset[str]:
    """Full names of the types that have rules here, without those on their durations."""
    return frozenset((*_OF_FIELDS, *_OF_MESSAGES, *_OF_VALUES))


def refuses_old_types(field: FieldDescriptor) -> bool:
    """True for an ``Any`` in Envoy's configuration where Envoy accepts no types of the v2 API any more."""
    owner, target = field.containing_type, field.message_type
    if owner is None or target is None or target.full_name != ANY or field.name in _ANY_TYPE:
        return False
    return _CONFIGURATION.match(owner.full_name) is not None and owner.full_name not in _OPTIONAL_HOLDERS
