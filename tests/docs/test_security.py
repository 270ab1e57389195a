"""What docs/security.md shows is taken by the server, and means what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from tests.support.process import REPOSITORY
from xds.access.auth_settings import AuthSettings
from xds.access.authorisation import Access, Identity, NodeAuthMode
from xds.access.certificate import Certificate
from xds.access.tokens import PLAIN_SCOPES, WRITE_GROUP, XDS, XDS_GROUP, XDS_NODE, Grant
from xds.model.node import Locality, Node

PAGE = (REPOSITORY / "docs" / "security.md").read_text()


def examples() -> Iterator[Access]:
    for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        yield AuthSettings.model_validate(yaml.safe_load(text)["auth"]).access()


def test_the_examples() -> None:
    rights, rules = examples()
    ann = rights.grant_of(Certificate(("spiffe://corp.example/operators/ann",)))
    assert (ann.name, ann.scopes) == ("operators", frozenset({"admin"}))
    assert rules.nodes.mode is NodeAuthMode.ENFORCE
    web = Certificate(("spiffe://corp.example/ns/shop/sa/web",))
    fitting = Node("web.shop.7", "web", metadata={"NAMESPACE": "shop"})
    proxy = Identity(rules.grant_of(web), web)
    assert rules.refusal(proxy, fitting, "shop-edge") is None
    assert rules.refusal(proxy, fitting, "bank-edge") is not None
    fleet = Identity(Grant("edge-fleet", frozenset({XDS})), None, b"x")
    assert rules.refusal(fleet, Node("edge-1", locality=Locality("eu")), "edge-1") is None
    assert rules.refusal(fleet, Node("edge-1", locality=Locality("us")), "edge-1") is not None


def test_every_scope_is_named() -> None:
    named = set(re.findall(r"`([a-z:]+(?:/GLOB)?)`", PAGE.partition("| scope | allows |")[2].partition("\n\n")[0]))
    assert {*PLAIN_SCOPES, *(f"{prefix}GLOB" for prefix in (WRITE_GROUP, XDS_NODE, XDS_GROUP))} <= named
