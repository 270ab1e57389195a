"""``xds chain`` against a running server: whole outputs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.process import LOOPBACK

TEXTS = Path(__file__).parent / "chains"


@pytest.fixture(scope="module", autouse=True)
def entries(remote: Remote) -> None:
    """The entries of ``shop``, through Consul's path; those that others rest on first."""
    given = yaml.safe_load((TEXTS / "shop.yaml").read_text())
    order = ["proxy-defaults", "service-defaults", "service-resolver", "service-splitter", "service-router"]
    for entry in sorted(given, key=lambda entry: order.index(entry["Kind"])):
        done = httpx.put(
            f"http://{LOOPBACK}:{remote.server.http_port}/v1/config", json=entry, trust_env=False, verify=False
        )
        assert done.text == "true", done.text


def told(name: str) -> str:
    return (TEXTS / name).read_text()


def test_the_chain_as_a_tree(remote: Remote) -> None:
    done = remote.xds("chain", "shop")
    assert (done.code, done.out) == (0, told("shop.txt")), done.err


def test_the_chain_as_documents_and_as_a_graph(remote: Remote) -> None:
    document = json.loads(remote.xds("chain", "shop", "-o", "json").out)
    assert document["Chain"]["StartNode"] == "router:shop.default.default"
    assert yaml.safe_load(remote.xds("chain", "shop", "-o", "yaml").out) == document
    assert json.loads(remote.xds("-o", "json", "chain", "shop").out) == document
    assert remote.xds("chain", "shop", "-o", "dot").out.startswith('digraph "shop" {\n')


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--path", "/admin/x?a=1", "--method", "put", "--header", "x-debug=1"), "shop-admin.txt"),
        (("--path", "/cart"), "shop-cart.txt"),
        (("--path", "/12", "--query", "b=2"), "shop-split.txt"),
        (
            (
                "--path",
                "/12?old",
            ),
            "shop-redirect.txt",
        ),
    ],
)
def test_the_way_of_a_request(remote: Remote, arguments: tuple[str, ...], text: str) -> None:
    done = remote.xds("chain", "shop", *arguments)
    assert (done.code, done.out) == (0, told(text)), done.err
    document = json.loads(remote.xds("chain", "shop", *arguments, "-o", "json").out)
    assert document["routes"][-1]["matches"] is True


def test_a_service_without_entries_has_a_chain(remote: Remote) -> None:
    done = remote.xds("chain", "team/other")
    assert done.out == (
        "team/other: http, datacenter dc1, no config entry changes the way\n"
        "└─ resolver team/other.default.default.dc1\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "name the service"),
        (("shop", "--path", "cart"), "--path begins with a slash"),
        (("shop", "--header", "x-debug"), "--header is NAME=VALUE, not 'x-debug'"),
        (("shop", "--query", "=1"), "--query is NAME=VALUE, not '=1'"),
        (("shop", "--path", "/", "-o", "dot"), "-o dot is for whole chains"),
    ],
)
def test_wrong_arguments_are_reported(remote: Remote, arguments: tuple[str, ...], message: str) -> None:
    done = remote.xds("chain", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
