"""``xds chain``: what is written of a chain and of a request's way, whole (the texts are in ``chains/``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chains import request_of
from tests.support.process import REPOSITORY
from xds.mesh.commands.chain_text import chain_dot, chain_text, walk_text
from xds.mesh.core.chain.chain import DiscoveryChain
from xds.mesh.core.chain.chain_json import chain_json, walk_json
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.request_walk import HttpRequest, walk

TEXTS = Path(__file__).parent / "chains"


def told(name: str) -> str:
    return (TEXTS / name).read_text()


def compiled(text: str, service: str = "web") -> DiscoveryChain:
    return compile_chain(request_of(text, service))


def walked(chain: DiscoveryChain, request: HttpRequest) -> str:
    return walk_text(walk_json(chain, request, walk(chain, request)))


def test_a_chain_is_a_tree_with_weights_redirects_and_failover() -> None:
    assert chain_text(chain_json(compiled(told("shop.yaml"), "shop"))) == told("shop.txt")


def test_a_chain_is_a_graph_for_graphviz() -> None:
    assert chain_dot(chain_json(compiled(told("web.yaml")))) == told("web.dot")


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("shop-admin.txt", HttpRequest.of("/admin/x?a=1", "put", [("x-debug", "1")])),
        ("shop-cart.txt", HttpRequest.of("/cart")),
        ("shop-split.txt", HttpRequest.of("/12?b=2")),
        ("shop-redirect.txt", HttpRequest.of("/12?old")),
    ],
)
def test_the_path_of_a_request_is_shown_with_the_routes_that_did_not_match(text: str, request_: HttpRequest) -> None:
    assert walked(compiled(told("shop.yaml"), "shop"), request_) == told(text)


def test_the_page_shows_the_output_of_the_command() -> None:
    page = (REPOSITORY / "docs/discovery-chain.md").read_text()
    chain = compiled((REPOSITORY / "examples/config-entries/web.yaml").read_text())
    assert f"```\n{chain_text(chain_json(chain))}```" in page
    assert f"```\n{walked(chain, HttpRequest.of('/cart'))}```" in page


def test_a_request_to_a_chain_without_a_router_goes_to_its_start() -> None:
    assert walked(compiled(""), HttpRequest.of("/")) == "GET / to web\n└─ resolver web.default.default.dc1\n"


def test_a_chain_without_partitions_is_shown() -> None:
    chain = compiled(told("web.yaml"))
    old = chain_json(compile_chain(request_of(told("web.yaml"), "web", has_partitions=False)))
    assert chain_text(old).replace(".default", ".default.default") == chain_text(chain_json(chain))


def test_names_of_others_cannot_steer_a_terminal() -> None:
    text = '- {Kind: service-resolver, Name: web, Redirect: {Service: "a\\e[2Jb"}}'
    assert "\\x1b[2J" in chain_text(chain_json(compiled(text)))
