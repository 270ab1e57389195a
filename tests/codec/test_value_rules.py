"""Rules on values that Envoy has in its code alone, each compared with a real Envoy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

from tests.codec import value_cases
from tests.codec.case_forms import Case, Json
from tests.codec.category_cases import REFUSED_CATEGORIES, TAKEN_CATEGORIES
from tests.codec.cluster_cases import REFUSED_CLUSTERS, TAKEN_CLUSTERS
from tests.codec.extension_cases import REFUSED_EXTENSIONS, TAKEN_EXTENSIONS, users
from tests.codec.filter_cases import REFUSED_FILTERS, TAKEN_FILTERS
from tests.codec.format_cases import REFUSED_FORMATS, TAKEN_FORMATS
from tests.codec.route_cases import REFUSED_ROUTES, TAKEN_ROUTES
from tests.codec.transport_cases import REFUSED_TRANSPORTS, TAKEN_TRANSPORTS
from tests.codec.value_cases import DEPENDING, WARNED
from tests.support.judging_envoy import JudgingEnvoy
from tests.support.resources import TYPE
from xds.codec.category_rules import _PLACES, misplaced
from xds.codec.resources import DecodedPush, ResourceDecoder
from xds.codec.schema import descriptor
from xds.model.errors import ValidationError, Violation
from xds.proto.extensions import categories

NETWORK = "envoy.extensions.filters.network"
ENTRY = ".TypedPerFilterConfigEntry"

REFUSED = {
    **value_cases.REFUSED,
    **REFUSED_CATEGORIES,
    **REFUSED_CLUSTERS,
    **REFUSED_EXTENSIONS,
    **REFUSED_FILTERS,
    **REFUSED_FORMATS,
    **REFUSED_ROUTES,
    **REFUSED_TRANSPORTS,
}
TAKEN = {
    **value_cases.TAKEN,
    **TAKEN_CATEGORIES,
    **TAKEN_CLUSTERS,
    **TAKEN_EXTENSIONS,
    **TAKEN_FILTERS,
    **TAKEN_FORMATS,
    **TAKEN_ROUTES,
    **TAKEN_TRANSPORTS,
}


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgingEnvoy]:
    with JudgingEnvoy(tmp_path_factory.mktemp("envoy"), ["c"]) as judge:
        yield judge


def errors_of(resource: Json) -> list[Violation]:
    try:
        ResourceDecoder().values([resource])
    except ValidationError as error:
        return error.violations
    return []


def warnings_of(resource: Json) -> list[Violation]:
    push: DecodedPush = ResourceDecoder().values([resource])
    return list(push.warnings)


def found(violations: list[Violation]) -> set[tuple[str, str]]:
    return {(one.code, one.pointer) for one in violations}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_envoy_rejects_are_refused_and_reported_once(name: str) -> None:
    case, errors = REFUSED[name], errors_of(REFUSED[name].resource)
    assert (case.code, case.pointer) in found(errors), errors
    pointers = [one.pointer for one in errors]
    assert len(set(pointers)) == len(pointers), errors


@pytest.mark.parametrize("name", TAKEN)
def test_values_that_envoy_accepts_are_accepted(name: str) -> None:
    assert errors_of(TAKEN[name].resource) == []


@pytest.mark.parametrize("name", [*WARNED, *DEPENDING])
def test_values_whose_validity_depends_on_the_proxy_are_warnings(name: str) -> None:
    case = {**WARNED, **DEPENDING}[name]
    assert (case.code, case.pointer) in found(warnings_of(case.resource))


def _said(envoy: JudgingEnvoy, case: Case) -> str:
    said = envoy.verdict(case.kind, case.resource)
    assert said is not None
    return said


@pytest.mark.soak
@pytest.mark.parametrize("name", [*REFUSED, *DEPENDING])
def test_envoy_refuses_it(name: str, envoy: JudgingEnvoy) -> None:
    assert _said(envoy, {**REFUSED, **DEPENDING}[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", [*TAKEN, *WARNED])
def test_envoy_takes_it(name: str, envoy: JudgingEnvoy) -> None:
    assert _said(envoy, {**TAKEN, **WARNED}[name]) == ""


def test_a_message_of_v2_has_a_hint_at_its_successor() -> None:
    (error,) = [one for one in errors_of(REFUSED["v2 within v3"].resource) if one.code == "v2_type"]
    assert ".http_connection_manager.v3.HttpConnectionManager" in error.hint


def test_a_filter_without_a_configuration_has_a_hint_at_its_type() -> None:
    (error,) = errors_of(REFUSED["a filter without a configuration"].resource)
    assert "envoy.extensions.filters.http.router.v3.Router" in error.hint


def test_names_have_a_hint_with_the_types_that_resolve_them() -> None:
    (error,) = errors_of(REFUSED["a name in an assignment"].resource)
    assert "STRICT_DNS" in error.hint


def test_a_password_is_not_shown() -> None:
    assert "secret" not in str(errors_of(users("bad_users", "a:secret").resource))


def test_the_content_of_a_key_is_not_shown() -> None:
    assert "oops" not in str(errors_of(REFUSED["a certificate that is not PEM"].resource))


def test_a_changed_endpoint_of_a_known_assignment_is_checked() -> None:
    """The decoder remembers parts that were valid, in static clusters and in clusters of DNS names alike."""
    decoder = ResourceDecoder()
    strict = TAKEN["a name of STRICT_DNS"].resource
    decoder.values([strict])
    with pytest.raises(ValidationError, match="must be an IP address"):
        decoder.values([{**strict, "type": "STATIC"}])


def test_every_place_of_an_extension_exists_and_has_extensions() -> None:
    for kind, fields in _PLACES.items():
        found = descriptor(TYPE + kind.removesuffix(ENTRY)) if kind.endswith(ENTRY) else descriptor(TYPE + kind)
        assert found is not None, kind
        names = {"typed_per_filter_config"} if kind.endswith(ENTRY) else set(fields)
        assert names <= set(found.fields_by_name), kind
        assert {*chain(*fields.values())} - {"envoy.filters.quic_listener"} <= categories(), kind


@pytest.mark.parametrize(
    "name", ["xds.type.v3.TypedStruct", "envoy.extensions.filters.network.kafka_broker.v3.KafkaBroker"]
)
def test_an_extension_that_the_standard_build_has_not_may_be_anywhere(name: str) -> None:
    assert misplaced(TYPE + name, frozenset({"envoy.filters.http"})) == []
