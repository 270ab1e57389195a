"""Names and tokens: what each grammar reads, and that what is written is read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.linkerd.core.authority import (
    Authority,
    Grammar,
    NamingRules,
    ProtocolGeneration,
    ServiceCandidate,
    read_authority,
    service_host,
)
from xds.linkerd.core.context_token import ContextToken, node_of, read_token
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Locality

RULES = NamingRules(("corp.example", "cluster.local"))
LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


def read(path: str, generation: ProtocolGeneration = ProtocolGeneration.LINKERD) -> Authority:
    return read_authority(path, RULES, generation)


@pytest.mark.parametrize(
    ("path", "grammar", "readings"),
    [
        ("web.shop.svc.corp.example:81", Grammar.KUBERNETES, [("web.shop", "", "")]),
        ("web.default.svc.cluster.local", Grammar.KUBERNETES, [("web.default", "", ""), ("web", "", "")]),
        ("v1.web.shop.svc.cluster.local", Grammar.KUBERNETES, [("web.shop", "v1", "")]),
        ("web.service.consul", Grammar.CONSUL, [("web", "", ""), ("web.default", "", "")]),
        ("v1.web.service.dc2.consul", Grammar.CONSUL, [("web", "v1", "dc2"), ("web.default", "v1", "dc2")]),
        ("web.service.shop.ns.dc2.dc.consul", Grammar.CONSUL, [("web.shop", "", "dc2")]),
        ("web.virtual.consul", Grammar.CONSUL, [("web", "", ""), ("web.default", "", "")]),
        ("web", Grammar.PLAIN, [("web", "", "")]),
        ("web.example.com", Grammar.FOREIGN, [("web.example.com", "", "")]),
        ("web.svc.cluster.local", Grammar.FOREIGN, [("web.svc.cluster.local", "", "")]),
        ("outbound|80||web", Grammar.FOREIGN, [("outbound|80||web", "", "")]),
    ],
)
def test_each_grammar_reads_its_names(path: str, grammar: Grammar, readings: list[tuple[str, str, str]]) -> None:
    found = read(path)
    assert found.grammar is grammar
    assert list(map(tuple, found.candidates)) == readings
    assert found.port == (81 if path.endswith(":81") else 80)


@given(
    LABEL, st.none() | LABEL, st.none() | LABEL, st.none() | LABEL, st.sampled_from(["kubernetes", "consul", "plain"])
)
def test_a_written_authority_is_read_again(
    service: str, namespace: str | None, label: str | None, datacenter: str | None, grammar: str
) -> None:
    name = f"{service}.{namespace}" if namespace else service
    reading = ServiceCandidate(name, label or "", datacenter or "")
    text = service_host(reading, Grammar(grammar), RULES)
    if {service, namespace, label, datacenter} & {"svc", "service", "virtual", "ns", "dc"}:
        return  # words of the grammars
    assert reading in read(text).candidates


@pytest.mark.parametrize("service", ["a|b", "a b", "", "-a"])
def test_a_service_that_no_grammar_can_name_has_no_name(service: str) -> None:
    assert service_host(ServiceCandidate(service), Grammar.KUBERNETES) == "" or not service


@given(st.text(max_size=40))
def test_no_path_is_read_as_anything_but_a_destination_or_refused(path: str) -> None:
    try:
        found = read(path)
    except RemoteProtocolError as error:
        assert error.code is StatusCode.INVALID_ARGUMENT
        return
    assert found.host and 0 < found.port <= 65_535


def test_names_of_2018_are_laxer() -> None:
    assert read("web.shop.svc", ProtocolGeneration.CONDUIT).grammar is Grammar.KUBERNETES
    assert read("web.shop.svc.cluster.local.", ProtocolGeneration.CONDUIT).host == "web.shop.svc.cluster.local"
    assert read("web.shop.svc").grammar is Grammar.FOREIGN
    assert read("[::1]:80").host == "::1" and str(read("[::1]:80")) == "[::1]:80"


def test_a_context_token_describes_the_proxy() -> None:
    token = read_token('{"ns":"shop","nodeName":"n1","pod":"web-1","zone":"z1","other":{}}\n')
    assert (token.namespace, token.node_name, token.pod, token.zone, token.ignored) == ("shop", "n1", "web-1", "z1", "")
    node = node_of(token, "ipv4:10.0.0.1:4711", Locality(zone="z1"))
    assert (node.id, node.cluster, node.metadata["nodeName"]) == ("web-1.shop", "shop", "n1")
    assert node_of(read_token(""), "ipv6:[::1]:4711", Locality()).id == "linkerd@::1"
    assert node_of(read_token('{"id":"a","cluster":"b"}'), "", Locality()).cluster == "b"
    assert read_token("ns:shop").namespace == "shop"


@given(st.text(max_size=50) | st.binary(max_size=50).map(lambda found: found.decode("latin-1")))
def test_no_token_is_an_error(text: str) -> None:
    assert isinstance(read_token(text), ContextToken)


@pytest.mark.parametrize("text", ["123fa-test", "[]", "null", '{"ns": 1}', '{"ns": "%s"}' % ("x" * 300), "[" * 4000])
def test_why_a_token_is_not_used(text: str) -> None:
    assert read_token(text).ignored
