"""Rules on the filters that write metadata from headers, JSON and Thrift, measured with Envoy 1.40."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.rules import MessageRule, Problem

_HTTP = "envoy.extensions.filters.http"
_THRIFT = "envoy.extensions.filters.network.thrift_proxy.filters"


def _check_header_rule(rule: Any) -> list[Problem]:
    """Check a ``Config.Rule``: the source of the metadata, and what is written."""
    if bool(rule.header) == bool(rule.cookie):
        code, words = ("not_allowed", "only") if rule.header else ("missing_field", "exactly")
        detail = f"a rule has {words} one of header and cookie"
        return [Problem(("header",), code, detail, is_absence=not rule.header)]
    if not rule.HasField("on_header_present") and not rule.HasField("on_header_missing"):
        detail = "a rule needs one of on_header_present and on_header_missing"
        return [Problem(("on_header_present",), "missing_field", detail, is_absence=True)]
    return [*_metadata_values(rule)]


def _metadata_values(rule: Any) -> Iterator[Problem]:
    present = rule.on_header_present
    if present.value and present.HasField("regex_value_rewrite"):
        detail = "only one of value and regex_value_rewrite can be set"
        yield Problem(("on_header_present", "value"), "not_allowed", detail)
    if rule.HasField("on_header_missing") and not rule.on_header_missing.value:
        detail = "a header that is missing needs a value in its place"
        yield Problem(("on_header_missing", "value"), "missing_field", detail, is_absence=True)
    if rule.cookie and rule.remove:
        yield Problem(("remove",), "not_allowed", "a cookie cannot be removed")


def _check_content_rule(rule: Any) -> list[Problem]:
    """Check a rule that says what to write if a value is present, and if it is missing."""
    if not rule.HasField("on_present") and not rule.HasField("on_missing"):
        detail = "a rule needs one of on_present and on_missing"
        return [Problem(("on_present",), "missing_field", detail, is_absence=True)]
    return [*_empty_values(rule)]


def _empty_values(rule: Any) -> Iterator[Problem]:
    """Check that the rule has the value to write if the source has none."""
    for field in ("on_missing", "on_error"):
        if field in rule.DESCRIPTOR.fields_by_name and rule.HasField(field) and not _has_value(getattr(rule, field)):
            detail = f"{field} needs the value that it writes"
            yield Problem((field, "value"), "missing_field", detail, is_absence=True)


def _has_value(pair: Any) -> bool:
    """The value is a ``google.protobuf.Value``, which may be empty, or a string, which may not."""
    kind = pair.DESCRIPTOR.fields_by_name["value"].message_type
    return bool(pair.value) if kind is None else bool(pair.HasField("value"))


def _check_thrift_filter(config: Any) -> list[Problem]:
    if config.request_rules or config.response_rules:
        return []
    detail = "the filter needs one of request_rules and response_rules"
    return [Problem(("request_rules",), "missing_field", detail, is_absence=True)]


METADATA_RULES: Mapping[str, MessageRule] = {
    f"{_HTTP}.header_to_metadata.v3.Config.Rule": _check_header_rule,
    f"{_HTTP}.json_to_metadata.v3.JsonToMetadata.Rule": _check_content_rule,
    f"{_HTTP}.thrift_to_metadata.v3.Rule": _check_content_rule,
    f"{_HTTP}.thrift_to_metadata.v3.ThriftToMetadata": _check_thrift_filter,
    f"{_THRIFT}.header_to_metadata.v3.HeaderToMetadata.Rule": _check_content_rule,
    f"{_THRIFT}.payload_to_metadata.v3.PayloadToMetadata.Rule": _check_content_rule,
}
