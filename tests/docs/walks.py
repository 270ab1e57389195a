"""How each command of each page is tried."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import xds
from tests.docs.kubernetes_rows import (
    PODS,
    envoy_is_connected,
    exported,
    forwarded,
    greeted,
    imaged,
    server_is_ready,
)
from tests.docs.rows import (
    answers,
    benched,
    built,
    contained,
    demo,
    dry,
    entered,
    events,
    installable,
    make_demo,
    named,
    no_nacks,
    on_path,
    released,
    serve,
    soon,
    starts_envoy,
    watch_directory,
    wheel,
    written,
)
from tests.support.clone import (
    ON_PATH,
    SERVE,
    Clone,
    Walk,
    bootstrap,
    envoy,
    envoy_command,
    fails,
    says,
    sees,
    starts,
)

UPSTREAM = starts("upstream", "18001")

README: Walk = [
    ("pip wheel --no-deps -w dist .", wheel),
    (f"pip install 'dist/xds_server-{xds.__version__}-py3-none-any.whl[envoy]'", installable),
    ("xds demo", demo),
    ("xds serve", serve),
    ("xds envoy --node-id edge-1", envoy_command("edge-1")),
    ("python -m http.server 18001 --bind 127.0.0.1", UPSTREAM),
    ("xds init hello", written),
    (
        "xds apply -g default -f hello.yaml --wait",
        says(r"group default: revision 1: \+1 clusters", "1 of 1 nodes"),
    ),
    ("curl http://127.0.0.1:10000/", says("Directory listing")),
    ("xds nodes", says("^edge-1 .* default ")),
    ("xds get clusters", says("^clusters +hello ")),
    ("xds nacks", no_nacks),
    ("docker build -t xds-server .", built),
    (
        "docker run --rm -p 127.0.0.1:18000:18000 -p 127.0.0.1:18080:18080 -v xds-data:/data"
        " xds-server serve --insecure",
        contained,
    ),
    ("make demo", make_demo),
    ("make test", dry),
    ("make setup", dry),
    (ON_PATH, on_path),
]

INSTALL: Walk = [
    ("pip wheel --no-deps -w dist .", wheel),
    (f"pip install 'dist/xds_server-{xds.__version__}-py3-none-any.whl[envoy]'", installable),
    ("pip install xds-server", released),
    ("pipx install 'xds-server[envoy]'", released),
    ("uvx --from xds-server xds serve", released),
    ("docker build -t xds-server .", built),
    (
        "docker run --rm -p 127.0.0.1:18000:18000 -p 127.0.0.1:18080:18080 -v xds-data:/data"
        " xds-server serve --insecure",
        contained,
    ),
]

FIRST_HOUR: Walk = [
    ("mkdir xds-first-hour && cd xds-first-hour", entered),
    ("xds serve", serve),
    ("xds envoy --node-id shop-1 --cluster shop", envoy_command("shop-1")),
    ("python -m http.server 18001 --bind 127.0.0.1", UPSTREAM),
    ("xds init hello -o shop.yaml", written),
    ("xds validate -f shop.yaml", says("0 errors")),
    (
        "xds convert ../examples/hello/envoy-static.yaml --snapshot converted.yaml --bootstrap bootstrap.yaml",
        says("converted.yaml"),
    ),
    ("xds validate -f converted.yaml", says("0 errors")),
    ('xds apply -g shop -f shop.yaml -m "begin" --wait', says("revision 1", "1 of 1 nodes")),
    ("curl http://127.0.0.1:10000/", says("Directory listing")),
    ("xds nodes", says("^shop-1 +shop .* shop ")),
    ("xds explain shop-1", says("shop")),
    ("xds get snapshot -g shop", says("hello")),
    ("xds envoy --node-id shop-2 --cluster shop --metadata tier=test", envoy_command("shop-2")),
    ("xds apply -g shop-test -f shop.yaml", says("group shop-test: revision 1")),
    (
        'xds group set shop-test --selector \'node.cluster == "shop" and node.metadata.tier == "test"\'',
        says("shop-test"),
    ),
    ("xds explain shop-2", says("shop-test")),
    ("xds nodes", sees("^shop-1 .* shop ", "^shop-2 .* shop-test ")),
    (
        "sed 's/address: 127.0.0.1, port_value: 10000/address: 192.0.2.1, port_value: 10000/' shop.yaml > broken.yaml",
        says(),
    ),
    (
        'xds apply -g shop -f broken.yaml -m "another address" --wait',
        fails(1, "[Cc]annot bind '192.0.2.1:10000'"),
    ),
    ("curl http://127.0.0.1:10000/", says("Directory listing")),
    ("xds nacks", says("192.0.2.1")),
    ("xds rollout undo shop --wait", says("1 of 1 nodes")),
    ("xds nacks --state open", no_nacks),
    ("xds rollout history shop", says("another address", "begin")),
    ("python -m http.server 18002 --bind 127.0.0.1", starts("second upstream", "18002")),
    ("xds endpoints add hello 127.0.0.1:18002 -g shop", says("127.0.0.1:18002")),
    ("xds endpoints show hello -g shop", says("127.0.0.1:18001", "127.0.0.1:18002")),
    ("xds endpoints drain hello 127.0.0.1:18002 -g shop", says("DRAINING")),
    ("head -c 32 /dev/urandom | base64 | tr -d '\\n' > operator.token", says()),
    ("head -c 32 /dev/urandom | base64 | tr -d '\\n' > proxies.token", says()),
    (
        "printf 'auth: {tokens: [{name: operator, scopes: [admin], sha256: %s},"
        " {name: proxies, scopes: [xds], sha256: %s}]}'"
        " $(sha256sum operator.token proxies.token | cut -c-64) > xds.yaml",
        says(),
    ),
    (
        "xds serve --config xds.yaml --store memory --grpc 127.0.0.1:18100 --http 127.0.0.1:18180",
        starts("second", "18180", "/readyz"),
    ),
    (
        "xds envoy --node-id shop-3 --cluster shop --token-file proxies.token --xds-addr 127.0.0.1:18100",
        starts_envoy,
    ),
    ("export XDS_ADDR=http://127.0.0.1:18180", exported),
    ("xds nodes", fails(6)),
    ("xds nodes --token-file proxies.token", fails(6)),
    ("xds nodes --token-file operator.token", sees("^shop-3 ")),
]

KUBERNETES: Walk = [
    ("docker build -t registry.example.com/xds-server:0.1.0 .", imaged),
    ("docker push registry.example.com/xds-server:0.1.0", imaged),
    ("kubectl create namespace xds", PODS.create),
    ("sh deploy/kubernetes/tokens.sh certs operator=admin proxies=xds prometheus=read", says()),
    ("kubectl create secret generic xds-tokens -n xds --from-file=tokens=certs/tokens", PODS.create),
    (
        "kubectl create secret tls xds-tls -n xds --cert=certs/server.pem --key=certs/server.key",
        PODS.create,
    ),
    ("kubectl apply -k deploy/kubernetes", PODS.apply),
    ("kubectl rollout status -n xds statefulset/xds", server_is_ready),
    ("kubectl port-forward -n xds service/xds 18080", forwarded),
    (
        "export XDS_ADDR=https://localhost:18080 XDS_CACERT=certs/ca.pem XDS_TOKEN_FILE=certs/operator.token",
        exported,
    ),
    ("xds check", says("ok +ready")),
    ("kubectl create namespace edge", PODS.create),
    ("kubectl create secret generic xds-proxy -n edge --from-file=token=certs/proxies.token", PODS.create),
    ("kubectl create configmap xds-ca -n edge --from-file=ca.crt=certs/ca.pem", PODS.create),
    ("kubectl apply -k deploy/kubernetes/envoy", PODS.apply),
    ("kubectl apply -f examples/kubernetes/greeter.yaml", PODS.greet),
    ("kubectl rollout status -n edge deployment/envoy", envoy_is_connected),
    (
        "sed 's/127.0.0.1/0.0.0.0/' examples/kubernetes/snapshot.yaml | xds apply -g edge -f - --wait",
        says("revision 1"),
    ),
    ("xds endpoints bind greeter greeter.default -g edge", says("greeter.default")),
    ("xds nodes", sees("^envoy-0 +edge .* edge ")),
    ("kubectl port-forward -n edge service/envoy 10000:80", forwarded),
    ("curl http://127.0.0.1:10000/", greeted),
    ("xds apply -g shop -f examples/kubernetes/snapshot.yaml", says("revision 1")),
    ("xds endpoints bind greeter greeter.default -g shop", says("greeter.default")),
    ("kubectl create namespace shop", PODS.create),
    ("kubectl create secret generic xds-proxy -n shop --from-file=token=certs/proxies.token", PODS.create),
    ("kubectl create configmap xds-ca -n shop --from-file=ca.crt=certs/ca.pem", PODS.create),
    ("kubectl apply -k deploy/kubernetes/sidecar", PODS.apply),
    ("xds nodes -g shop", sees("^shop-0 +shop .* shop ")),
    ("kubectl create secret generic xds-metrics -n xds --from-file=token=certs/prometheus.token", PODS.create),
    ("kubectl create configmap xds-ca -n xds --from-file=ca.crt=certs/ca.pem", PODS.create),
    ("kubectl create secret generic xds-database -n xds --from-file=url=certs/database-url", PODS.create),
    ("kubectl apply -k deploy/kubernetes/replicas", PODS.replicate),
    ("xds members", says("holds")),
]

CONTRIBUTING: Walk = [
    ("make check", dry),
    ("make test", dry),
    ("make format", dry),
    ("make soak", dry),
    ("python -m bench.engine", benched),
    ("python -m bench.fanout", benched),
    ("python -m bench.codec", benched),
    ("python -m bench.pushes", benched),
    ("python -m bench.mistakes examples tests/codec/shapes", benched),
    ("python -m bench.chain", benched),
    ("python -m bench.rollouts", benched),
    ("python -m bench.nodes", benched),
    ("python -m bench.catalog", benched),
    ("python -m bench.catalog --services 1 --instances 10000", benched),
    ("python -m bench.destination", benched),
    ("python -m bench.assignment", benched),
    ("python -m bench.assignment_live", benched),
    ("make bench-quick", dry),
    ("make bench", dry),
]


def nothing(clone: Clone) -> None:
    """The page starts what it needs."""


def running_hello(clone: Clone) -> None:
    """A server and an Envoy that serves ``examples/hello``: where the first five minutes end."""
    serve(clone, "xds serve")
    envoy_command("edge-1")(clone, "xds envoy --node-id edge-1")
    says("1 of 1 nodes")(clone, "xds apply -g default -f examples/hello/snapshot.yaml --wait")
    UPSTREAM(clone, "python examples/hello/upstream.py 18001")


def running_server(clone: Clone) -> None:
    """A server that holds nothing."""
    serve(clone, "xds serve")


# docs/configuration.md

CONFIGURATION: Walk = [
    ("export XDS_SERVER__GRPC__PORT=18000", says()),
    ("export XDS_AUTH__TOKEN_SHA256_FILE=/run/secrets/xds-tokens", says()),
    ("head -c 32 /dev/urandom | base64 > token", says()),
    ("tr -d '\\n' < token | sha256sum", says(r"^[0-9a-f]{64} ")),
]


# docs/admin-api.md


API = "http://127.0.0.1:18080/api/v1"
GROUP = f"{API}/groups/default"
AS_YAML = "-H 'Content-Type: application/yaml'"
SPARE = '{"name": "spare", "type": "STATIC", "connect_timeout": "1s"}'
EDGE = '{"selector": "node.metadata.role == edge", "priority": 10, "listener_drain_s": 60}'
CLUSTER = '{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "type": "STATIC"}'
BLUE = f'{{"group": "blue", "put": [{CLUSTER}]}}'
BOTH = f'{{"changes": [{BLUE}, {{"group": "green", "snapshot": {{"resources": []}}}}]}}'
ENTRIES = f"{API}/config-entries"
SUBSETS = '{"Subsets": {"v1": {}, "v2": {}}, "ConnectTimeout": "3s"}'
UPSTREAMS = '{"upstreams": [{"service": "web", "bind_port": 9191}]}'
EMPTIED = '{"group": "blue", "snapshot": {"resources": []}}'
WITH_ENTRIES = (
    f'{{"changes": [{EMPTIED}], "config_entries": {{"put": [{{"Kind": "service-resolver", "Name": "api"}}]}}}}'
)
NEW_NODE = '{"id": "new-1", "metadata": {"role": "edge"}}'
TO_1 = '{"to": 1}'
LIVE = f"{GROUP}/endpoints/hello"
PUT_ONE = '{"put": [{"address": "127.0.0.1:8082", "weight": 2}]}'
REMOVE_ONE = '{"remove": ["127.0.0.1:8082"]}'
POLL = '{"node": {"id": "edge-1"}}'


def sent(body: str) -> str:
    """The options of curl that send a JSON body."""
    return f"-H 'Content-Type: application/json' -d '{body}'"


HELLO = f"-T examples/hello/snapshot.yaml {AS_YAML}"
ONCE = f"curl -sf {HELLO} -H 'Idempotency-Key: build-1234' {GROUP}/snapshot"

ADMIN_API: Walk = [
    (f"curl -s {API}/openapi.json", answers(openapi=lambda version: version.startswith("3."))),
    (f"curl -sf {HELLO} {API}/validate -X POST", answers(warnings=[])),
    (f"curl -sf {HELLO} '{GROUP}/snapshot?message=again'", answers(group="default", revision=1, changed=False)),
    (f"curl -sf -X PUT {sent(SPARE)} {GROUP}/resources/clusters/spare", answers(revision=2)),
    (f"curl -sf {GROUP}/resources/clusters/spare", answers(name="spare")),
    (f"curl -sf {GROUP}/resources/clusters", answers(items=lambda items: len(items) == 2)),
    (f"curl -sf -X DELETE {GROUP}/resources/clusters/spare", answers(revision=3)),
    (f"curl -s {HELLO} -H 'If-Match: r1' {GROUP}/snapshot", answers(status=412)),
    (ONCE, answers(revision=3)),
    (ONCE, answers(revision=3)),
    (
        f"curl -sf -T examples/weighted-split/snapshot.yaml {AS_YAML} '{GROUP}/snapshot?dry_run=true'",
        answers(dry_run=True, changed=True),
    ),
    (f"curl -sf {HELLO} -H 'Prefer: wait=30' {GROUP}/snapshot", answers(progress=lambda found: found["synced"] == 1)),
    (f"curl -sf {sent(BOTH)} {API}/transactions", answers(results=named("group", "blue", "green"))),
    (f"curl -sf {API}/groups", answers(items=named("group", "blue", "default", "green"))),
    (f"curl -sf -X PUT {sent(EDGE)} {API}/groups/blue", answers(group="blue", priority=10, listener_drain_s=60)),
    (f"curl -sf {API}/groups/blue", answers(selector="node.metadata.role == edge")),
    (f"curl -sf {GROUP}/rollout", answers(group="default", revision=3, nacked=0)),
    (f"curl -sf {API}/certificates", answers(items=[])),
    (f"curl -sf -X DELETE {API}/groups/green", answers(group="green")),
    (f"curl -sf {GROUP}/revisions", answers(items=named("revision", 3, 2, 1))),
    (f"curl -sf {GROUP}/revisions/1", answers(revision=1)),
    (f"curl -sf '{GROUP}/revisions/3/diff?from=2'", answers(resources=named("name", "spare"))),
    (f"curl -sf {sent(TO_1)} '{GROUP}/rollback?message=as+before'", answers(revision=3)),
    (f"curl -sf {GROUP}/undo", answers(revision=3, to=2)),
    (
        f"curl -sf -X PUT {sent(UPSTREAMS)} '{API}/groups/shop/upstreams?selector=node.cluster%20==%20shop'",
        answers(group="shop", revision=1),
    ),
    (f"curl -sf {API}/groups/shop/upstreams", answers(upstreams=1, selector="node.cluster == shop")),
    (f"curl -sf {API}/upstreams", answers(items=named("group", "shop"), limit=1000)),
    (f"curl -sf -X DELETE '{API}/groups/shop/upstreams?dry_run=true'", answers(group="shop", dry_run=True)),
    (
        f"curl -sf -T examples/config-entries/web.yaml {AS_YAML} -X POST {ENTRIES}",
        answers(revision=1, chains=["web"]),
    ),
    (f"curl -sf '{ENTRIES}?kind=service-resolver'", answers(items=named("name", "web"), revision=1)),
    (f"curl -sf -X PUT {sent(SUBSETS)} {ENTRIES}/service-resolver/web", answers(revision=2)),
    (f"curl -sf {API}/discovery-chains/web", answers(Chain=lambda chain: chain["StartNode"].startswith("router:"))),
    (
        f"curl -sf '{API}/discovery-chains/web/walk?path=/admin/users&header=x-debug=1'",
        answers(ways=named("target", "admin.default.default.dc1")),
    ),
    (f"curl -sf {ENTRIES}/revisions/2/diff", answers(items=named("name", "web"))),
    (f"curl -sf {ENTRIES}/undo", answers(to=1)),
    (f"curl -sf {sent(TO_1)} {ENTRIES}/rollback", answers(revision=3, chains=["web"])),
    (f"curl -sf -X DELETE '{ENTRIES}/service-router/web?dry_run=true'", answers(revision=3, dry_run=True)),
    (f"curl -sf {sent(WITH_ENTRIES)} {API}/transactions", answers(config_entries=lambda found: found["revision"] == 4)),
    (f"curl -sf {API}/nodes", answers(items=named("id", "edge-1"))),
    (
        f"curl -sf '{API}/nodes?text=edge&order=trouble&limit=100&counts=true'",
        answers(counts=lambda found: found["total"] == found["connected"] == found["by_state"]["synced"] == 1),
    ),
    (f"curl -sf {API}/nodes/edge-1", answers(id="edge-1", group="default")),
    (
        f"curl -sf {API}/nodes/edge-1/resources",
        answers(items=lambda items: {each["name"] for each in items if each.get("lingers")} <= {"spare"}),
    ),
    (f"curl -sf -X POST {API}/nodes/edge-1/release", answers(released=lambda found: found in ({"clusters": 1}, {}))),
    (f"curl -sf -X POST {GROUP}/release", answers(nodes=0, released={})),
    (f"curl -sf '{API}/nodes/edge-1/explain?type=clusters&name=hello'", answers(group="default", rule="node.cluster")),
    (
        f"curl -sf '{API}/nodes/edge-1/timeline?limit=50'",
        answers(items=lambda found: "connected" in {item["kind"] for item in found}, truncated=False),
    ),
    (f"curl -sf {sent(NEW_NODE)} {API}/explain", answers(group="blue", rule="selector")),
    (f"curl -sf '{API}/nacks?state=open'", answers(items=[])),
    (f"curl -sf '{API}/bootstrap?node_id=edge-2'", answers(node=lambda node: node["id"] == "edge-2")),
    (f"curl -sf {API}/sources", answers(items=named("name", "registration"))),
    (f"curl -sf {API}/members", answers(items=lambda found: [each["is_holder"] for each in found] == [True])),
    (f"curl -sf {API}/watch", answers(directory=lambda found: found is None)),
    (
        f"curl -s --max-time 2 -H 'Accept: application/x-ndjson' -H 'Last-Event-ID: 0' '{API}/events?kinds=push,node'",
        events,
    ),
    (f"curl -sf -X PATCH {sent(PUT_ONE)} {LIVE}", answers(changed=True, endpoints_n=2, warnings=[])),
    (f"curl -sf -X PATCH {sent(REMOVE_ONE)} '{LIVE}?drain_s=30'", answers(draining_n=1)),
    (f"curl -sf {LIVE}", answers(owner=lambda owner: owner["kind"] == "hand")),
    (f"curl -sf '{GROUP}/endpoints?live=true'", answers(items=named("name", "hello"))),
    (f"curl -sf -X DELETE '{LIVE}?drain_s=0'", answers(owner={"kind": "pushed"}, endpoints_n=1)),
    (
        f"curl -sf '{API}/audit?group=default&limit=5'",
        answers(items=lambda items: [each["revision"] for each in items[:3]] == [1, 2, 3], lagged=False),
    ),
    (f"curl -sf {API}/schema/clusters", answers(**{"$schema": lambda found: "2020-12" in found})),
    (f"curl -sf {API}/version", answers(version=xds.__version__)),
    (f"curl -sf {API}/config", answers(order=lambda found: found["enabled"])),
    (f"curl -sf {API}/whoami", answers(scopes=lambda found: "admin" in found)),
    (f"curl -sf {API}/store", answers(state="ok")),
    (f"curl -sf {API}/backup -o xds.tar", says()),
    (
        f"curl -sf --data-binary @xds.tar -H 'Content-Type: application/x-tar' '{API}/restore?replace=true'",
        answers(restored=True),
    ),
    ("curl -sf http://127.0.0.1:18080/livez", says()),
    ("curl -sf http://127.0.0.1:18080/readyz", says("ready")),
    ("curl -sf http://127.0.0.1:18080/metrics", says("^xds_server_nodes")),
    (f"curl -sf {sent(POLL)} http://127.0.0.1:18080/v3/discovery:clusters", answers(resources=named("name", "hello"))),
]


# docs/command-line.md


VALIDATE = "xds validate -f examples/hello/snapshot.yaml"

COMMAND_LINE: Walk = [
    (VALIDATE, says()),
    (f"{VALIDATE} --envoy .venv/bin/envoy", says()),
    (
        "xds validate -f examples/broken/refused-by-server.yaml",
        fails(3, "conect_timeout", "refused-by-server.yaml:6:5"),
    ),
    ("xds bootstrap --mode split -o split.yaml", says()),
    (f"{VALIDATE} --bootstrap split.yaml", fails(3, "the bootstrap has no ads_config")),
    ("xds convert examples/hello/envoy-static.yaml --snapshot converted.yaml --bootstrap bootstrap.yaml", says()),
    ("xds validate -f converted.yaml", says()),
    ("xds diff -g default -f examples/hello/snapshot.yaml", says()),
    ("xds diff -g default -f examples/weighted-split/snapshot.yaml", fails(1, "shop-v1", "hello")),
    ("xds apply -g default -f examples/weighted-split/snapshot.yaml --dry-run", says("would change")),
    (
        'xds apply -g default -f examples/weighted-split/snapshot.yaml -m "try the split" --wait',
        says("revision 2", "1 of 1 nodes"),
    ),
    ("xds apply -g default -f examples/hello/snapshot.yaml --if-match 1", fails(5)),
    (
        'xds apply -g default -f examples/hello/snapshot.yaml -m "back to one" --if-match 2 --wait=90% --timeout 30s',
        says("revision 3", "1 of 1 nodes"),
    ),
    ("xds get cluster hello -o yaml > hello-cluster.yaml", says()),
    ("xds put -g default -f hello-cluster.yaml --dry-run", says("group default: revision 3, unchanged")),
    ("xds export default > backup.yaml", says()),
    ("xds apply -g copy -f backup.yaml", says("group copy: revision 1")),
    ("xds delete cluster hello -g copy --dry-run", says("1 clusters")),
    ("xds delete copy", says("copy")),
    (
        "xds group set canary --selector 'node.metadata.canary == \"yes\"' --priority 10",
        says("group canary: selector - -> ", "no nodes belong to it until"),
    ),
    ("xds apply -g canary -f examples/hello/snapshot.yaml", says("group canary: revision 1")),
    ("xds group list", says("^canary +0 +1 +10 ")),
    ("xds group show canary", says("^selector: ")),
    ("xds group delete canary --dry-run", says("would be deleted")),
    ("xds group delete canary", says("group canary: deleted")),
    ("xds get groups", says("^default ")),
    ("xds get clusters", says("hello ")),
    ("xds get cluster hello -o yaml", says("name: hello")),
    ("xds get snapshot -o json", says('"revision": 3')),
    ("xds describe group default", says("back to one")),
    ("xds describe node edge-1", says("edge-1")),
    ("xds describe cluster hello", says("hello")),
    ("xds nodes", says("^edge-1 .*✓ 3")),
    ("xds nodes -g default --state synced -o wide", says("^edge-1 ")),
    ("xds nodes -l 'node.cluster == \"default\"' -o name", says("^edge-1$")),
    ("xds nodes --order trouble --text edge", says("edge-1")),
    ("xds nacks --since 1h --state open", no_nacks),
    ("xds nacks --each", no_nacks),
    ("xds config edge-1", says("clusters +hello ")),
    ("xds config edge-1 clusters --name 'hel*' -o yaml", says("name: hello")),
    ("xds troubleshoot edge-1 --to hello", says("^listener +✓ ok", "^route +✓ ok", "^endpoints +✓ ok")),
    ("xds watch --since 10m --no-follow", says("push committed", "node connected")),
    ("xds history --since 2h", says("default +push ")),
    ("xds release --node edge-1", says("1 node released |nothing lingered")),
    ("xds timeline edge-1", says("connected", "sent")),
    ("xds explain edge-1 clusters hello", says("default", "hello")),
    ("xds explain --node-file examples/hello/node.yaml", says("default")),
    ("xds services", says("SERVICE")),
    ("xds endpoints bind hello web", says("^hello +web +waiting ", "no source has the service 'web' yet")),
    ("xds service web", says("no source has the service web yet", "assignment hello of group default follows")),
    ("xds endpoints bindings", says("^hello +web +waiting ")),
    ("xds endpoints unbind hello", says("its binding is ended")),
    ("xds rollout status default --wait", says("default")),
    ("xds rollout history default", says("back to one", "try the split")),
    ("xds diff -g default --from 1 --to 2", fails(1, "shop-v1")),
    ('xds rollout undo default --to 1 -m "as in the beginning" --wait', says("default")),
    ("xds config-entry write -f examples/config-entries/ --dry-run", says("would change; chains: web$")),
    ("xds config-entry write -f examples/config-entries/", says("revision 1; chains: web$")),
    ("xds config-entry diff -f examples/config-entries/", says()),
    ("xds config-entry list -o wide", says("^service-splitter +web +1 +1 +r1-")),
    ("xds config-entry read service-splitter web -o json", says('"ModifyIndex": 1')),
    ('xds config-entry delete service-router web -m "no admin pages"', says("revision 2; chains: web$")),
    ("xds config-entry history", says("no admin pages$")),
    ("xds config-entry undo --dry-run", says("would change; chains: web$")),
    ("xds config-entry undo --to 1", says("revision 3; chains: web$")),
    ("xds chain web", says("^└─ router web")),
    (
        "xds chain web --path /admin/users --method POST --header x-debug=1",
        says("^└─ route 1, path begins with /admin: yes", "resolver admin"),
    ),
    ("xds chain web -o dot > web.dot", says()),
    ("xds audit --since 24h", says("push +default +revision 2", "412")),
    ("xds audit -g default --no-refused -o jsonl", says('"action": "push"')),
    ("xds watch --kinds push --since 0 --limit 2", says("default")),
    ("xds check", says("ready", "store")),
    ("xds check --ready", says("ready")),
    ("xds whoami", says("no credentials")),
    ("xds serve --store memory --watch snapshots", watch_directory),
]


# docs/operations.md


OPERATIONS: Walk = [
    ("xds check", says("ready")),
    ("xds nodes", says("^edge-1 ")),
    ("xds nacks --state open", no_nacks),
    ("xds rollout history default", says("1 ")),
    ("xds nacks -o yaml", says()),
    ("xds config edge-1 clusters", says("NAME .* LINGERS", "hello")),
    ("xds release --node edge-1", says("nothing lingered")),
    ("xds release -g default", says("nothing lingered")),
    ("xds explain edge-1", says("default")),
    ("xds describe node edge-1", says("edge-1")),
    ("xds config edge-1 --sent", says("hello")),
    ("head -c 32 /dev/urandom | base64 > token", says()),
    ("tr -d '\\n' < token | sha256sum | cut -c-64 > token.sha256", says()),
    (
        "XDS_AUTH__TOKEN_SHA256_FILE=token.sha256"
        " xds serve --store memory --grpc 127.0.0.1:18100 --http 127.0.0.1:18180",
        starts("second", "18180", "/readyz"),
    ),
    ("XDS_ADDR=http://127.0.0.1:18180 xds get groups --token-file token", says()),
    ("XDS_ADDR=http://127.0.0.1:18180 xds get groups", fails(6)),
    (
        "xds bootstrap --token-file token --ca /etc/xds/ca.pem --xds-addr xds.example:18000 -o envoy.yaml",
        says(),
    ),
    ("cat envoy.yaml", says("trusted_ca", "Bearer")),
    ("xds backup xds.tar", says()),
    ("xds restore xds.tar --check", says("xds.tar: 1 group")),
    ("xds backup - --no-history > now.tar", says()),
    ("xds backup shown.tar --redact", says()),
    ("xds restore xds.tar --replace --dry-run", says("can be restored: 1 group")),
    ("xds restore xds.tar --replace --yes", says("restored: 1 group")),
    ("xds store check --help", says("store check")),
    ("xds store copy --help", says("store copy")),
    ("xds rollout history default", says("1 ")),
    ("xds export default --revision 1 > first.yaml", says()),
    ("xds rollout undo default --to 1 --wait", says("default")),
]


# docs/load-reports.md

LOAD_REPORTS: Walk = [
    ("xds serve --lrs-interval 1s", SERVE),
    ("xds bootstrap --node-id edge-1 --region eu --zone eu-1 > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("edge-1")),
    ("xds apply -g default -f examples/hello/snapshot.yaml --wait", says("1 of 1 nodes")),
    ("python examples/hello/upstream.py 18001", UPSTREAM),
    (
        "for i in $(seq 200); do curl -s http://127.0.0.1:10000/hello > reply; sleep 0.02; done",
        says(),
    ),
    ("xds load", soon(r"^hello +[1-9]", r"^xds_cluster ")),
    ("xds load hello", soon(r"^eu/eu-1 +- +0 +\d", r"hello: .* 0\.0% errors .* 1 node")),
    ("xds load hello --by node --window 5m", says(r"^edge-1 +eu/eu-1 ")),
    ("xds load hello -o json", answers(cluster="hello", by="locality")),
    (f"curl -sf '{API}/load?window=60'", answers(items=named("cluster", "hello", "xds_cluster"))),
    (f"curl -sf '{API}/load/hello?window=5m&by=locality'", answers(successes=lambda number: number > 0, errors=0)),
    (
        f"curl -sf '{API}/load/hello/series?window=60&step=10'",
        answers(step_s=10, items=lambda lines: sum(point["successes"] for point in lines[0]["points"]) > 0),
    ),
    ("xds nodes", says("^edge-1 ")),
]


# docs/load-assignment.md


def in_background(clone: Clone, command: str) -> None:
    """It runs until the test ends."""
    clone.start("load", command)


LOAD = "python examples/load.py http://127.0.0.1:10000/"
BOTH_ZONES = (r"^ +\d+ of 200  Hello from eu-1", r"^ +\d+ of 200  Hello from eu-2")

LOAD_ASSIGNMENT: Walk = [
    ("xds serve --lrs-interval 1s", SERVE),
    ("xds bootstrap --node-id zones-1 --cluster zones --region eu --zone eu-1 > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("zones-1")),
    ("python examples/hello/upstream.py 18001 eu-1", starts("eu-1", "18001")),
    ("python examples/hello/upstream.py 18002 eu-2", starts("eu-2", "18002")),
    ("xds apply -g zones -f examples/two-zones/snapshot.yaml --wait", says("1 of 1 nodes")),
    (f"{LOAD} --requests 200", says(*BOTH_ZONES)),
    (
        "xds validate -f examples/two-zones/snapshot.yaml --policy examples/two-zones/policy.yaml",
        says("0 errors, 0 warnings"),
    ),
    ("xds assignment set -g zones -f examples/two-zones/policy.yaml --dry-run", says("dry run: nothing was changed")),
    ("xds assignment set -g zones -f examples/two-zones/policy.yaml", says("^web +eu/eu-1 ")),
    ("xds assignment show -g zones", soon("^web +eu/eu-1 +settled .* 100% eu/eu-1")),
    (f"{LOAD} --requests 100", soon("^ +100 of 100  Hello from eu-1")),  # the proxy may have no weights yet
    (f"{LOAD} --rate 80", in_background),
    ("xds assignment show web -g zones", soon(r"\d+% eu/eu-1, \d+% eu/eu-2")),
    ("xds load web", soon(r"^eu/eu-1 +eu/eu-2 +0 +[1-9]")),
    # Before the first step there are equal shares, where load is reported before the policy has decided anything.
    ("xds assignment history web -g zones", soon(r"changed .* \d+% eu/eu-1, \d+% eu/eu-2 +\S*spill")),
    ("xds config zones-1 endpoints", says(r"^endpoints +web .* 1\+[0-9a-f]{8} .* assignment$")),
    ("xds explain zones-1 endpoints web", says("^overlay: +traffic assignment for eu/eu-1")),
    ("xds get endpoint web -g zones -o yaml", says("load_balancing_weight: 1$")),
    (f"curl -sf {API}/groups/zones/assignments/web", answers(cluster="web", endpoints="web", waits_for="")),
    ("xds watch --kinds assignment --since 0 --limit 1", says("configured")),
    ("xds assignment delete web -g zones", says("its policy is deleted")),
    (f"{LOAD} --requests 200", soon(*BOTH_ZONES)),
]


# docs/discovery-chain.md

CONSUL = API.replace("/api/v1", "/v1")
ADMIN = '{"Kind": "service-resolver", "Name": "admin", "ConnectTimeout": "3s"}'
SLOW = '{"OverrideConnectTimeout": "7s"}'

DISCOVERY_CHAIN: Walk = [
    (
        'xds config-entry write -f examples/config-entries/web.yaml -m "split web"',
        says(r"^\+ service-splitter/web$", "revision 1; chains: web$"),
    ),
    ("xds config-entry list", says("^service-splitter +web +1$")),
    ("xds config-entry read service-splitter web", says("^- Weight: 95$")),
    ("xds config-entry delete service-router web --dry-run", says("would change; chains: web$")),
    ("xds config-entry delete service-router web", says("^- service-router/web$", "revision 2; chains: web$")),
    ("xds config-entry diff --from 1 --to 2", fails(1, "PathPrefix: /admin")),
    ("xds config-entry history", says("^2 .* push +3 +-$", "^1 .* push +4 +split web$")),
    ("xds config-entry undo", says("revision 3; chains: web$")),
    (f"curl -sf {API}/discovery-chains/web", answers(Chain=lambda chain: chain["StartNode"].startswith("router:"))),
    ("xds chain web", says("^      └─ splitter web", "95% resolver v1.web")),
    (
        "xds chain web --path /admin/users --method POST --header x-debug=1 --query page=2",
        says("^POST /admin/users[?]page=2 to web: x-debug: 1$", "^└─ route 1, path begins with /admin: yes"),
    ),
    ("xds chain web --path /cart", says("route 1, path begins with /admin: no", "route 2, any request: yes")),
    ("xds chain web -o dot > web.dot", says()),
    (f"curl -sf -X PUT -d '{ADMIN}' {CONSUL}/config", says("^true$")),
    (f"curl -sf {CONSUL}/config/service-resolver/admin", answers(Name="admin", ModifyIndex=4)),
    (f"curl -sf '{CONSUL}/discovery-chain/web?index=2&wait=10s'", answers(Chain=lambda chain: chain["Nodes"])),
    (
        f"curl -sf -X POST -d '{SLOW}' {CONSUL}/discovery-chain/web",
        answers(Chain=lambda chain: chain["CustomizationHash"]),
    ),
    (f"curl -sf -X DELETE {CONSUL}/config/service-resolver/admin", says("^{}$")),
]


# docs/services.md


def show_targets(clone: Clone, *instances: str) -> None:
    """Write the target file of the source ``targets``."""
    (clone.directory / "targets.json").write_text(json.dumps({"services": {"web": instances}}))


def hello_with_targets(clone: Clone) -> None:
    """As ``running_hello``, with a source of instances."""
    show_targets(clone, "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
    sources = {"targets": {"kind": "files", "paths": [str(clone.directory / "targets.json")]}}
    clone.set("XDS_SOURCES", json.dumps(sources))
    running_hello(clone)


def with_loss(clone: Clone, command: str) -> None:
    """Tried when the source has lost everything."""
    show_targets(clone)
    soon('"held_n": 1')(clone, "xds sources targets -o json")
    says("web: 3 instances would go")(clone, command)


REGISTERED = (
    '{"ID": "web-1", "Name": "web", "Address": "10.0.0.9", "Port": 8080, "Check": {"TTL": "10s", "Status": "passing"}}'
)
SERVICES: Walk = [
    ("xds endpoints add hello 127.0.0.1:8082 --weight 2", says("^127.0.0.1:8082 +UNKNOWN +2 ")),
    ("xds endpoints show hello", says("^127.0.0.1:8082 ", "by hand")),
    ("xds endpoints drain hello 127.0.0.1:8082 --for 30s", says("^127.0.0.1:8082 +DRAINING ")),
    ("xds endpoints add hello 127.0.0.1:8082", says("^127.0.0.1:8082 +UNKNOWN +2 ")),
    ("xds endpoints remove hello 127.0.0.1:8082 --now", says("ADDRESS", "by hand")),
    ("xds endpoints list --live", says("^hello +by hand")),
    ("xds endpoints delete hello --now", says("hello of group default: pushed")),
    ("xds services", soon("^web +3 +3 +0 .* targets ")),
    ("xds service web", says("^10.0.0.1:80 +10.0.0.1:80 +passing +1 .* targets ")),
    ("xds service web -o wide", says("CHECKS")),
    ("xds source accept targets --dry-run", with_loss),
    ("xds source accept targets --service web", says("web: 3 instances go")),
    ("xds endpoints bind web web", says("^web +web +live +3 ")),
    (
        "xds endpoints bind web-v2 web --filter 'Service.Meta.version == 2' --port grpc",
        says("warning: endpoints/web-v2: it selects none of the 3 instances of 'web'"),
    ),
    ("xds endpoints bindings", says("^web +web +live +3 ", "^web-v2 +web +live +0 +port grpc, filter ")),
    ("xds endpoints unbind web", says("its binding is ended")),
    (f"curl -X PUT {CONSUL}/agent/service/register -d '{REGISTERED}'", says()),
    (f"curl -X PUT {CONSUL}/agent/check/pass/service:web-1", says()),
    ("xds service registered", says("web-1")),
]


# docs/mesh.md

MESH: Walk = [
    ("xds config-entry write -f examples/config-entries/web.yaml", says("revision 1; chains: web$")),
    (
        "xds upstreams set shop -f examples/upstreams/shop.yaml --selector 'node.cluster == shop'",
        says(r"^group shop: revision 1: \+\d+ clusters, \+1 listeners, \+1 routes"),
    ),
    ("xds upstreams list", says("^shop +0 +1 +.*1 listeners, 1 routes +node.cluster == shop")),
    ("xds upstreams get shop", says("^routes +web +web +.*service-router/web", "^endpoints ")),
    ("xds config-entry delete service-router web --dry-run", says("^group shop: would change: .*~1 routes")),
    ("xds config-entry delete service-router web", says("^group shop: revision 2: .*~1 routes")),
    ("xds config-entry undo", says("^group shop: revision 3: ")),
    ("xds get clusters -g shop", says("^clusters +v1.web.default.dc1.internal.consul ")),
    ("xds export shop", says(r"^\d+ resources come from the upstreams of the group and are left out")),
    ("xds explain --node-file examples/hello/node.yaml routes web", says("^group: ")),
    ("xds upstreams delete shop --dry-run", says("^group shop: would change: ")),
]


# docs/linkerd.md

LINKERD: Walk = [
    ("xds destination get web.default.svc.cluster.local:80", soon(r"^\+ 10.0.0.1:80 weight=\d+ ")),
    ("""xds destination get web:80 --token '{"ns": "shop", "zone": "z1"}' -o json""", says('"addr": "10.0.0.1:80"')),
    ("xds destination profile web.default.svc.cluster.local:80", says("^fully_qualified_name: web.default.svc")),
    ("xds destination explain web.default.svc.cluster.local:80", says("^source: service web")),
]


# docs/rollouts.md

REFUSED = r"edge-\d rejected .*Address already in use"
ROLLOUTS: Walk = [
    ("xds envoy --node-id edge-2", envoy_command("edge-2")),
    ("xds export default | sed 's/timeout: 1s/timeout: 2s/' > good.yaml", says()),
    (
        "xds apply -g default -f good.yaml --canary 1 --dry-run",
        says(r"^  wave 1 \(1\) would add 1 node: edge-\d$", r"^  wave 2 \(100%\) would add 1 node: edge-\d$"),
    ),
    (
        "xds apply -g default -f good.yaml --canary 1 --hold 2s --max-errors off --wait",
        says("group default: revision 2 in place of 1: promoted"),
    ),
    ("xds export default | sed s/10000/18080/ > taken.yaml", says()),
    ("xds apply -g default -f taken.yaml --canary 1 --wait", fails(1, REFUSED)),
    ("xds rollout history default", says("^4 .*rollback to 2.*Address already in use", "^3 .*undone by 4")),
    ("curl http://127.0.0.1:10000/", says("You asked for /")),
    ("xds apply -g default -f taken.yaml", fails(5, "taken back", "--retry")),
    (
        "xds apply -g default -f taken.yaml --canary 1 --on-failure hold --retry --wait",
        fails(1, REFUSED),
    ),
    ("xds rollout list", says(r"^default +held +1 of 2 \(1\) +5 +4 ")),
    ("xds nodes --line base", says(r"^edge-\d +base ")),
    ("xds explain edge-1", says("^rollout:  served ")),
    ('xds rollout abort default -m "the port is taken"', says("rolled back: aborted: the port is taken")),
    (
        "xds group set default --rollout 1,10%,50% --rollout-hold 2m",
        says("rollout - -> 1,10%,50%, hold 120s"),
    ),
    ("xds group set default --rollout none", says("rollout .* -> -")),
]


WALKS: Mapping[str, tuple[Callable[[Clone], None], Walk]] = {
    "README.md": (nothing, README),
    "install.md": (nothing, INSTALL),
    "first-hour.md": (nothing, FIRST_HOUR),
    "kubernetes.md": (PODS.prepare, KUBERNETES),
    "CONTRIBUTING.md": (nothing, CONTRIBUTING),
    "configuration.md": (nothing, CONFIGURATION),
    "admin-api.md": (running_hello, ADMIN_API),
    "command-line.md": (running_hello, COMMAND_LINE),
    "discovery-chain.md": (running_server, DISCOVERY_CHAIN),
    "operations.md": (running_hello, OPERATIONS),
    "services.md": (hello_with_targets, SERVICES),
    "mesh.md": (running_hello, MESH),
    "linkerd.md": (hello_with_targets, LINKERD),
    "rollouts.md": (running_hello, ROLLOUTS),
    "load-reports.md": (nothing, LOAD_REPORTS),
    "load-assignment.md": (nothing, LOAD_ASSIGNMENT),
}
