"""Every example works: the commands of its README with real clients, and the results that it describes."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.consul.clients import CONSUL
from bench.peers.go_program import build
from tests.support.background import Background
from tests.support.clone import SERVE, Clone, Row, Walk, bootstrap, commands, envoy, fails, says, sees, starts, try_page
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, REPOSITORY, free_port, wait_until

EXAMPLES = REPOSITORY / "examples"
SPLIT_REQUESTS = 1000
LOAD_AROUND_ROTATION = 50
PEM_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


@pytest.fixture
def clone(tmp_path: Path, running: ExitStack) -> Clone:
    return Clone(tmp_path, running)


WRITTEN = re.compile(r"(?:>>? ?|--snapshot |--bootstrap |-o )([\w./-]*[./]?[\w-]+)$")


def test_what_examples_write_is_ignored_by_git() -> None:
    """They leave no changed checkout behind."""
    pages = sorted(EXAMPLES.glob("*/README.md"))
    written = {found[1] for page in pages for line in commands(page) if (found := WRITTEN.search(line))}
    written |= {"inventory.db", "certs/server.pem"}  # by programs of the examples
    assert {"scratch/files/shop.yaml", "moved.yaml", "server.json", "kubeconfig", "addresses"} <= written
    done = subprocess.run(
        ["git", "check-ignore", *written], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == written


def _greeted(output: str, name: str) -> int:
    found = re.search(rf"^ *(\d+) of \d+  Hello from {name}!", output, re.MULTILINE)
    return int(found[1]) if found else 0


def _split_load(clone: Clone, command: str) -> None:
    """Nine of ten are 900 of 1000, with a standard deviation of 9.5; the bounds are ten times as wide."""
    output = clone.run(command)
    v1, v2 = _greeted(output, "v1"), _greeted(output, "v2")
    assert v1 + v2 == SPLIT_REQUESTS, output
    assert 800 <= v1 <= 995, output


SPLIT: Walk = [
    ("xds serve", SERVE),
    ("python examples/hello/upstream.py 18001 v1", starts("v1", "18001")),
    ("python examples/hello/upstream.py 18002 v2", starts("v2", "18002")),
    ("xds bootstrap --node-id split-1 --cluster split > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("split-1")),
    ("xds apply -g split -f examples/weighted-split/snapshot.yaml --wait", says("revision 1: .*2 clusters")),
    (f"python examples/load.py http://127.0.0.1:10000/ --requests {SPLIT_REQUESTS}", _split_load),
    (
        "sed 's/weight: 90/weight: 0/; s/weight: 10/weight: 100/' examples/weighted-split/snapshot.yaml > moved.yaml",
        says(),
    ),
    ('xds apply -g split -f moved.yaml -m "all to v2" --wait', says("revision 2: ~1 routes$")),
    ("python examples/load.py http://127.0.0.1:10000/ --requests 200", says("^ *200 of 200  Hello from v2!")),
]


def test_weighted_split(clone: Clone) -> None:
    try_page(EXAMPLES / "weighted-split/README.md", SPLIT, clone)


MAKE = "python examples/tls-sds/certificate.py make certs"
SHOW = "python examples/tls-sds/certificate.py show 127.0.0.1:10443"
PUSH_SECRET = "xds apply -g tls -f examples/tls-sds/snapshot.yaml -f certs/secret.yaml"


def test_tls_sds(clone: Clone, background: Background, running: ExitStack) -> None:
    made: list[str] = []
    loads: list[HttpLoad] = []

    def make(clone: Clone, command: str) -> None:
        made.append(clone.run(command).split()[1])

    def show(clone: Clone, command: str) -> None:
        clone.started["tls-1"].wait_until(lambda: clone.run(command).split()[1] == made[-1], "the new certificate")

    def rotate(clone: Clone, command: str) -> None:
        trusted = ssl.create_default_context(cafile=str(clone.directory / "certs/ca.pem"))
        load = running.enter_context(HttpLoad(background, clone.ports["10443"], tls=trusted))
        loads.append(load)
        load.wait_total(LOAD_AROUND_ROTATION)
        says("revision 2: ~1 secrets$")(clone, command)
        load.wait_total(LOAD_AROUND_ROTATION)

    walk: Walk = [
        ("xds serve", SERVE),
        ("xds bootstrap --node-id tls-1 --cluster tls > envoy.yaml", bootstrap),
        ("envoy -c envoy.yaml", envoy("tls-1")),
        (MAKE, make),
        (f"{PUSH_SECRET} --wait", says(r"revision 1: .*\+1 secrets")),
        ("curl --cacert certs/ca.pem https://127.0.0.1:10443/", says("^Hello over TLS!")),
        (SHOW, show),
        (MAKE, make),
        (f'{PUSH_SECRET} -m "rotate" --wait', rotate),
        (SHOW, show),
    ]
    try_page(EXAMPLES / "tls-sds/README.md", walk, clone)
    assert made[0] != made[1]
    report = loads[0].stop()
    assert not report.failed, report.samples


def _grpc_server(clone: Clone, command: str) -> None:
    server = clone.start("greeter", command)
    server.wait_until(lambda: clone.knows("greeter-server"), "the server is connected")


GRPC: Walk = [
    ("xds serve", SERVE),
    ("xds bootstrap --mode grpc --node-id greeter-server --cluster greeter -o json > server.json", bootstrap),
    ("GRPC_XDS_BOOTSTRAP=server.json python examples/grpc/server.py 127.0.0.1:50051", _grpc_server),
    ("xds apply -g greeter -f examples/grpc/snapshot.yaml --wait", says("revision 1: .*2 listeners", "1 of 1 nodes")),
    ("xds bootstrap --mode grpc --node-id greeter-client --cluster greeter -o json > client.json", bootstrap),
    (
        "GRPC_XDS_BOOTSTRAP=client.json python examples/grpc/client.py xds:///greeter",
        says("^Hello, world!$"),
    ),
    ("xds nodes", says("^greeter-server ")),
]


def test_grpc(clone: Clone) -> None:
    try_page(EXAMPLES / "grpc/README.md", GRPC, clone)


def _consumer(clone: Clone, command: str) -> None:
    consumer = clone.start("consumer", command)
    consumer.wait_until(lambda: clone.knows("flags-1"), "the consumer is connected")


def _printed(*lines: str) -> Row:
    def tried(clone: Clone, command: str) -> None:
        clone.run(command)
        consumer = clone.started["consumer"]
        consumer.wait_until(lambda: set(lines) <= set(consumer.log().splitlines()), f"the consumer prints {lines}")

    return tried


FLAG_NEW, FLAG_DARK = "new-checkout is on for 25 %", "dark-mode is off for 0 %"

CUSTOM: Walk = [
    (
        "python -m grpc_tools.protoc -I examples/custom-type --descriptor_set_out=flags.binpb flags.proto",
        says(),
    ),
    ("XDS_CODEC__DESCRIPTOR_SETS='[\"flags.binpb\"]' xds serve", SERVE),
    ("python examples/custom-type/consumer.py 127.0.0.1:18000 flags.binpb", _consumer),
    ("xds apply -g flags -f examples/custom-type/snapshot.yaml --wait", _printed(FLAG_NEW, FLAG_DARK)),
    ("xds get resources -g flags", says("FeatureFlag +dark-mode", "FeatureFlag +new-checkout")),
    (
        "xds apply -g flags -f examples/custom-type/opaque.yaml --wait",
        _printed("new-checkout is on for 50 %", "dark-mode is gone"),
    ),
]


def test_custom_type(clone: Clone) -> None:
    try_page(EXAMPLES / "custom-type/README.md", CUSTOM, clone)


def test_custom_type_is_served_as_bytes_by_a_server_that_does_not_know_it(clone: Clone) -> None:
    for command, row in CUSTOM[:1]:
        row(clone, command)
    SERVE(clone, "xds serve")
    _consumer(clone, CUSTOM[2][0])
    _printed("new-checkout is on for 50 %")(clone, CUSTOM[-1][0])


BY_SERVER = "xds apply -g broken -f examples/broken/refused-by-server.yaml"
PLACE = r"examples/broken/refused-by-server\.yaml:"

BROKEN: Walk = [
    ("xds serve", SERVE),
    ("xds bootstrap --node-id broken-1 --cluster broken > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("broken-1")),
    (
        BY_SERVER,
        fails(
            3,
            PLACE + r"6:5\b.*conect_timeout",
            r'did you mean "connect_timeout"\?',
            PLACE + r"11:5\b.*connect_timeout",
            PLACE + r"18:59\b.*port_value",
        ),
    ),
    (
        "xds apply -g broken -f examples/broken/refused-by-envoy.yaml --wait",
        fails(1, "broken-1 rejected routes web: .*user_id"),
    ),
    ("xds nacks", says("routes .* broken-1 .*user_id")),
    (
        "xds validate -f examples/broken/refused-by-envoy.yaml --envoy .venv/bin/envoy",
        fails(3, r"refused-by-envoy\.yaml:\d+:\d+: .*user_id"),
    ),
    ("xds apply -g broken -f examples/broken/fixed.yaml --wait", says("1 of 1 nodes have revision 2")),
    ("curl http://127.0.0.1:10000/user/42", says("^a user$")),
    ("xds nacks --state open", says(r"\A.*MESSAGE.*\nno NACK matches")),
]


def test_broken(clone: Clone) -> None:
    try_page(EXAMPLES / "broken/README.md", BROKEN, clone)


def test_every_example_is_tried_here() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"}
    walked_elsewhere = {"two-zones", "config-entries", "upstreams"}  # docs: load-assignment, discovery-chain, mesh
    tried = {"hello", "weighted-split", "tls-sds", "grpc", "custom-type", "broken", "files", "own-source"}
    tried |= {"consul", "kubernetes", "mesh", "python", "linkerd"}
    assert folders == tried | walked_elsewhere


def test_no_private_key_is_kept_in_the_examples() -> None:
    texts = [path.read_text() for path in EXAMPLES.rglob("*") if path.suffix in {".yaml", ".json", ".pem", ".key"}]
    assert texts
    assert not [text for text in texts if PEM_KEY.search(text)]


def _when_open(row: Row) -> Row:
    """Try a row once Envoy listens."""

    def tried(clone: Clone, command: str) -> None:
        wait_until(lambda: clone.fetches(clone.url("10000")), "Envoy answers")
        row(clone, command)

    return tried


def _writes(clone: Clone, command: str) -> None:
    clone.run(command)


def _shared_load(clone: Clone, command: str) -> None:
    """Round robin over two instances, however the connections are spread."""
    sees("Hello from one!", "Hello from two!")(clone, command)
    output = clone.run(command)
    one, two = _greeted(output, "one"), _greeted(output, "two")
    assert one + two == 200, output
    assert min(one, two) >= 60, output


FILES: Walk = [
    ("mkdir -p scratch/files && cp examples/files/targets/* scratch/files/", _writes),
    ("xds serve --config examples/files/xds.yaml", SERVE),
    ("python examples/hello/upstream.py 18001 one", starts("one", "18001")),
    ("python examples/hello/upstream.py 18002 two", starts("two", "18002")),
    ("xds bootstrap --node-id files-1 --cluster files > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("files-1")),
    ("xds sources", sees(r"^targets +files +reading +1 +1 ")),
    ("xds service shop", says("127.0.0.1:18001")),
    ("xds apply -g files -f examples/files/snapshot.yaml", says("revision 1")),
    ("xds endpoints bind shop shop -g files", says()),
    (
        "python examples/load.py http://127.0.0.1:10000/ --requests 100",
        sees("^ *100 of 100  Hello from one!"),
    ),
    ("echo '    - 127.0.0.1:18002' >> scratch/files/shop.yaml", _writes),
    ("xds service shop", sees("127.0.0.1:18001", "127.0.0.1:18002")),
    ("python examples/load.py http://127.0.0.1:10000/ --requests 200", _shared_load),
    (
        """echo '[{"targets": ["127.0.0.1:18002"], "labels": {"job": "cart", "zone": "a"}}]' """
        "> scratch/files/cart.json",
        _writes,
    ),
    ("xds services", sees("^cart ", "^shop ")),
    ("echo '    - shop.example.org:80' >> scratch/files/shop.yaml", _writes),
    ("xds sources targets", sees(r"shop\.yaml:5:7 .*'shop\.example\.org' is not an IP address")),
    ("xds check", says(r"^sources +. warning +targets 1 left out")),
    ("xds service shop", says("127.0.0.1:18001", "127.0.0.1:18002")),
]


def test_files(clone: Clone) -> None:
    try_page(EXAMPLES / "files/README.md", FILES, clone)


OWN_SOURCE: Walk = [
    ("python examples/own-source/table.py inventory.db shop 127.0.0.1:18001 a", _writes),
    ("xds serve --config examples/own-source/xds.yaml", SERVE),
    ("xds sources", sees(r"^inventory +inventory +reading +1 +1 ")),
    ("python examples/own-source/table.py inventory.db shop 127.0.0.1:18002 b", _writes),
    ("xds service shop", sees("127.0.0.1:18001", "127.0.0.1:18002")),
]


def test_own_source(clone: Clone) -> None:
    try_page(EXAMPLES / "own-source/README.md", OWN_SOURCE, clone)


def _canary_load(clone: Clone, command: str) -> None:
    """As in `_split_load`."""
    output = clone.run(command)
    v1, v2 = _greeted(output, "web-v1"), _greeted(output, "web-v2")
    assert v1 + v2 == SPLIT_REQUESTS, output
    assert 800 <= v1 <= 995, output


CART = "curl http://127.0.0.1:10000/cart"
LOADED = "python examples/load.py http://127.0.0.1:10000/ --requests"

MESH: Walk = [
    ("xds serve --config examples/mesh/xds.yaml", SERVE),
    ("python examples/hello/upstream.py 18001 web-v1", starts("web-v1", "18001")),
    ("python examples/hello/upstream.py 18002 web-v2", starts("web-v2", "18002")),
    ("python examples/hello/upstream.py 18003 cart-dc1", starts("cart-dc1", "18003")),
    ("python examples/hello/upstream.py 18004 cart-dc2", starts("cart-dc2", "18004")),
    ("xds config-entry write -f examples/mesh/entries.yaml", says("service-splitter/web")),
    ("xds upstreams set shop -f examples/mesh/upstreams.yaml", says("revision 1")),
    ("xds bootstrap --node-id shop-1 --cluster shop > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("shop-1")),
    (f"{LOADED} {SPLIT_REQUESTS}", _when_open(_canary_load)),
    ("xds chain web", says("cart", "90", "10")),
    (
        "sed 's/Weight: 90/Weight: 0/; s/Weight: 10/Weight: 100/' examples/mesh/entries.yaml > moved.yaml",
        _writes,
    ),
    ("xds config-entry write -f moved.yaml --dry-run", says("shop", "routes")),
    ("xds config-entry write -f moved.yaml", says("service-splitter/web")),
    (f"{LOADED} 200", sees("^ *200 of 200  Hello from web-v2!")),
    ("xds config-entry undo", says("service-splitter/web")),
    (CART, says("Hello from cart-dc1!")),
    ("sed -i 's/health: passing/health: critical/' examples/mesh/instances/services.yaml", _writes),
    (CART, sees("Hello from cart-dc2!")),
    ("sed -i 's/health: critical/health: passing/' examples/mesh/instances/services.yaml", _writes),
    (CART, sees("Hello from cart-dc1!")),
]


def test_mesh(clone: Clone) -> None:
    try_page(EXAMPLES / "mesh/README.md", MESH, clone)


def _consul(clone: Clone, command: str) -> None:
    """The agent of the clone, on free ports besides that of the documentation."""
    ports = " ".join(f"-{name}-port={free_port()}" for name in ("server", "serf-lan"))
    flags = (
        f"-http-port={clone.ports[CONSUL_PORT]} {ports} -serf-wan-port=-1 -dns-port=-1 -grpc-port=-1 -bind=127.0.0.1"
    )
    started = clone.start("consul", f"{command} {flags}")
    # Writes are answered once there is a leader.
    started.wait_until(
        lambda: clone.fetches(clone.url(CONSUL_PORT, "/v1/catalog/services?consistent")), "Consul has a leader"
    )


def _starts_greeter(name: str, port: str) -> Row:
    def tried(clone: Clone, command: str) -> None:
        started = clone.start(name, command)
        started.wait_until(lambda: _is_open(clone.ports[port]), f"{command} answers")

    return tried


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def _ends_consul(clone: Clone, command: str) -> None:
    """As the page says: with Consul gone, the clients go on."""
    clone.started["consul"].stop()
    says("Hello, world, from two!")(clone, command)


SHOP = "xds destination get shop.default.svc.cluster.local:80"
SHOP_PROFILE = "xds destination profile shop.default.svc.cluster.local:80"
TWO = "    - {address: 127.0.0.1, port: 18002, id: two, meta: {linkerd-identity: two.shop.example}}"
LINKERD: Walk = [
    ("mkdir -p scratch/linkerd && cp examples/linkerd/targets/* scratch/linkerd/", _writes),
    ("xds serve --config examples/linkerd/xds.yaml", SERVE),
    (SHOP, says(r"^\+ 127.0.0.1:18001 weight=\d+ service_id=one ")),
    ("xds destination profile 10.96.0.10:80", says("^fully_qualified_name: shop.default.svc.cluster.local")),
    (f"echo '{TWO}' >> scratch/linkerd/shop.yaml", says()),
    (SHOP, sees(r"^\+ 127.0.0.1:18002 weight=\d+ identity=two.shop.example protocol=h2 ")),
    ("xds config-entry write -f examples/linkerd/canary.yaml", says("service-splitter")),
    (SHOP_PROFILE, says("authority: stable.shop.*", "weight: 9000", "authority: canary.shop.*", "weight: 1000")),
    ("xds destination get canary.shop.default.svc.cluster.local:80", says(r"^\+ 127.0.0.1:18002 ")),
    ("xds destination get linkerd.io:80", fails(2, "INVALID_ARGUMENT")),
    ("xds destination explain shop.default.svc.cluster.local:80", says("^source: service shop", "endpoints_total: 2")),
]


def test_linkerd(clone: Clone) -> None:
    try_page(EXAMPLES / "linkerd/README.md", LINKERD, clone)


CONSUL_PORT = "8500"
CALL = "python examples/grpc/client.py 127.0.0.1:10000"
CALL_XDS = "GRPC_XDS_BOOTSTRAP=client.json python examples/grpc/client.py xds:///greeter"
CONSUL_PAGE: Walk = [
    ("consul agent -dev", _consul),
    ("python examples/consul/greeter.py 127.0.0.1:18001 one", _starts_greeter("one", "18001")),
    ("python examples/consul/greeter.py 127.0.0.1:18002 two", _starts_greeter("two", "18002")),
    ("xds serve --config examples/consul/xds.yaml", SERVE),
    ("consul services register examples/consul/greeter-1.json", says("Registered service: greeter")),
    ("xds apply -g consul -f examples/consul/snapshot.yaml", says("revision 1")),
    ("xds endpoints bind greeter greeter -g consul", says()),
    ("xds service greeter", sees("127.0.0.1:18001 .*consul")),
    ("xds bootstrap --node-id consul-1 --cluster consul > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("consul-1")),
    (CALL, says("Hello, world, from one!")),
    ("xds bootstrap --mode grpc --node-id greeter-client --cluster consul -o json > client.json", bootstrap),
    (CALL_XDS, says("Hello, world, from one!")),
    ("consul services register examples/consul/greeter-2.json", says("Registered service: greeter")),
    ("consul maint -enable -service greeter-1 -reason moving", says("maintenance")),
    ("xds service greeter", sees("127.0.0.1:18001 .*critical", "127.0.0.1:18002 .*passing")),
    (CALL, sees("Hello, world, from two!")),
    (CALL_XDS, says("Hello, world, from two!")),
    (CALL, _ends_consul),
    ("xds sources", sees("^consul +consul +failing")),
]


@pytest.mark.soak
@pytest.mark.timeout(3_000)  # the first run builds Consul, on whatever machine
@pytest.mark.xdist_group("consul")
def test_consul(tmp_path: Path, running: ExitStack) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "consul").symlink_to(build(CONSUL))
    clone = Clone(tmp_path, running, {"PATH": f"{programs}:{os.environ['PATH']}"})
    try_page(EXAMPLES / "consul/README.md", CONSUL_PAGE, clone)


def _comes_to_say(pattern: str) -> Row:
    """The request is soon answered so: endpoints arrive at Envoy shortly after their source shows them."""

    def tried(clone: Clone, command: str) -> None:
        url = clone.adapted(command).split()[-1]
        wait_until(lambda: clone.fetches(url) and re.search(pattern, clone.run(command)), f"{command}: {pattern}")

    return tried


CONTROL_PLANE = (
    "python examples/python/control_plane.py --grpc 127.0.0.1:18000 --http 127.0.0.1:18080 --listener 10000 addresses"
)
PYTHON: Walk = [
    ("echo 127.0.0.1:18001 > addresses", says()),
    (CONTROL_PLANE, SERVE),
    ("python examples/hello/upstream.py 18001 one", starts("one", "18001")),
    ("python examples/hello/upstream.py 18002 two", starts("two", "18002")),
    ("xds bootstrap --node-id edge-1 --cluster edge > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("edge-1")),
    ("curl -s http://127.0.0.1:10000/", _comes_to_say("Hello from one!")),
    ("echo 127.0.0.1:18002 > addresses", says()),
    ("curl -s http://127.0.0.1:10000/", _comes_to_say("Hello from two!")),
    (
        "python examples/python/push.py edge spare",
        says("^revision 2: spare$", "^edge-1: clusters synced at revision 2$"),
    ),
    ("xds nodes", says("edge-1 +edge ")),
    ("python examples/python/push.py edge spare --timeout-s -1", fails(1, "clusters/spare /connect_timeout: ")),
]


def test_python(clone: Clone) -> None:
    try_page(EXAMPLES / "python/README.md", PYTHON, clone)
    log = clone.started["server"].log_tail()
    assert "edge-1: clusters acked" in log
