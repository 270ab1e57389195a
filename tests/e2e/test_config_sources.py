"""A real Envoy gets each resource that it names by a second config source, or by a changed one .

docs/protocol.md#additions: "a resource that the client has, and that a new or changed resource names by another config
source, is sent once more behind it". ``OTHER`` has other bytes than `ADS` and the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support import resources as r
from tests.support.bootstrap import Variant
from tests.support.envoy import EnvoyProcess, get
from tests.support.pki import Certificate, CertificateAuthority, served_serial
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

OTHER: r.Json = {"ads": {}}
PATIENT: r.Json = {"ads": {}, "initial_fetch_timeout": "0s"}  # never goes on without the resource
INJECTOR_TYPE = r.TYPE + "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector"
GENERIC_TYPE = r.TYPE + "envoy.extensions.http.injected_credentials.generic.v3.Generic"

Connect = Callable[..., EnvoyProcess]
Listener = Callable[[str, r.Json], r.Json]  # name and config source -> listener


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The server that modules like this one share."""
    shared_server.begin_anew()
    return shared_server


class Site:
    """A certificate, and a TLS upstream and a plain one."""

    def __init__(
        self,
        directory: Path,
        secure_upstream: Callable[[str, Certificate], Upstream],
        upstream: Callable[[str], Upstream],
    ) -> None:
        self.ca = CertificateAuthority(directory)
        self.certificate = self.ca.issue("web")
        self.secure_port = secure_upstream("secure", self.certificate).port
        self.plain_port = upstream("plain").port

    def serves(self, port: int, kind: str) -> bool:
        """Whether a listener serves what the resources of this kind make it serve."""
        try:
            if kind == "certificate":
                return served_serial(port, self.ca) == self.certificate.serial
            answer = get(port, x_scope="A")
        except (httpx.TransportError, OSError):
            return False
        if kind == "no-scopes":
            return answer.status_code == 404
        return answer.status_code == 200 and (kind != "filter" or answer.headers.get("x-ecds") == "one")

    def certificate_secret(self) -> r.Json:
        return r.tls_secret("s1", self.certificate.pem, self.certificate.key_pem)

    def trusting_cluster(self, name: str, source: r.Json) -> r.Json:
        """A cluster of the TLS upstream that trusts by SDS."""
        return r.static_cluster(name, self.secure_port, transport_socket=r.upstream_tls("trust", "localhost", source))


def _direct(name: str, filters: Sequence[r.Json] = (), tls: r.Json | None = None) -> r.Json:
    return r.listener(name, r.inline_routes(name, r.direct_route("hi")), filters=filters, transport_socket=tls)


def _injector(source: r.Json) -> r.Json:
    """An HTTP filter that needs a generic secret for each request."""
    credential = {"@type": GENERIC_TYPE, "credential": {"name": "g1", "sds_config": source}}
    config = {"@type": INJECTOR_TYPE, "overwrite": True, "credential": {"name": "g", "typed_config": credential}}
    return {"name": "injector", "typed_config": config}


def _scopes_with_routes_from(source: r.Json) -> r.Json:
    routes = r.scopes("x-scope")
    routes["scoped_routes"]["rds_config_source"] = source
    return routes


GENERIC_SECRET: r.Json = {
    "@type": r.SECRET_TYPE,
    "name": "g1",
    "generic_secret": {"secret": {"inline_string": "Basic c2VjcmV0"}},
}
SCOPES: Sequence[r.Json] = (r.route_config("rA", r.direct_route("a")), r.scoped_route("sA", "rA", "A"))
HOSTS: Sequence[r.Json] = (
    r.vhds_route_config("table"),
    r.virtual_host("table/svc.test", [r.direct_route("a")], ["svc.test"]),
)
ON_DEMAND = (r.on_demand_filter(),)

# Listeners that name a resource by a config source, by the kind of the resource
LISTENERS: Mapping[str, Listener] = {
    "certificate": lambda name, source: _direct(name, tls=r.downstream_tls("s1", source)),
    "filter": lambda name, source: _direct(name, [r.discovered_filter("ec1", source=source)]),
    "scopes": lambda name, source: r.listener(name, r.scopes("x-scope", source)),
    "no-scopes": lambda name, source: r.listener(name, r.scopes("x-scope", source)),
    "routes-of-scopes": lambda name, source: r.listener(name, _scopes_with_routes_from(source)),
    "generic-secret": lambda name, source: _direct(name, [_injector(source)]),
    "routes": lambda name, source: r.listener(name, r.rds("rA", source)),
    "routes-with-hosts": lambda name, source: r.listener(name, r.rds("table", source), filters=ON_DEMAND),
}


@dataclass(frozen=True, slots=True)
class Change:
    """Two pushes, and the listeners that must serve after the second one."""

    before: Sequence[r.Json]
    after: Sequence[r.Json]
    listeners: Sequence[str] = ("web",)


def change_of(kind: str, how: str, site: Site) -> Change:
    """A second listener or cluster names the resource by another source (``second``), or the first one does."""
    if kind in LISTENERS:
        named = {
            "certificate": [site.certificate_secret()],
            "filter": [r.header_extension("ec1", "x-ecds", "one")],
            "generic-secret": [GENERIC_SECRET],
            "no-scopes": [],
            "routes": SCOPES[:1],
            "routes-with-hosts": HOSTS,
        }.get(kind, SCOPES)
        web, listener = LISTENERS[kind]("web", r.ADS), LISTENERS[kind]
        if how == "second":
            return Change([web, *named], [web, listener("other", OTHER), *named], ("web", "other"))
        return Change([web, *named], [listener("web", OTHER), *named])
    if kind == "hosts":
        web = LISTENERS["routes-with-hosts"]("web", r.ADS)
        return Change([web, *HOSTS], [web, r.vhds_route_config("table", OTHER), *HOSTS[1:]])
    if kind == "trust":
        named, cluster = [r.trust_secret("trust", site.ca.pem)], site.trusting_cluster
    else:
        named = [r.cluster_load_assignment("e1", site.plain_port)]

        def cluster(name: str, source: r.Json) -> r.Json:
            return r.eds_cluster(name, source, service_name="e1")

    base = [*named, r.listener("web", r.inline_routes("web", r.route("c1")))]
    if how == "second":
        second = [cluster("c2", OTHER), r.listener("other", r.inline_routes("other", r.route("c2")))]
        return Change([cluster("c1", r.ADS), *base], [cluster("c1", r.ADS), *base, *second], ("web", "other"))
    return Change([cluster("c1", r.ADS), *base], [cluster("c1", OTHER), *base])


BOTH = (Variant.ADS_SOTW, Variant.ADS_DELTA)
KINDS = (*LISTENERS, "hosts", "trust", "endpoints")
QUICK = {
    ("certificate", "changed", Variant.ADS_DELTA),
    ("filter", "second", Variant.ADS_DELTA),
    ("scopes", "changed", Variant.ADS_SOTW),
    ("trust", "changed", Variant.ADS_DELTA),
}
ROWS = [
    pytest.param(*row, marks=() if row in QUICK else pytest.mark.soak, id="-".join(row))
    for row in [(kind, how, variant) for kind in KINDS for how in ("changed", "second") for variant in BOTH]
    if row[:2] != ("hosts", "second") and ("hosts" not in row[0] or row[2] is Variant.ADS_DELTA)
]


@pytest.mark.parametrize(("kind", "how", "variant"), ROWS)
def test_envoy_gets_a_resource_that_it_names_by_another_config_source(
    server: ServerProcess,
    connect: Connect,
    tmp_path: Path,
    secure_upstream: Callable[[str, Certificate], Upstream],
    upstream: Callable[[str], Upstream],
    kind: str,
    how: str,
    variant: Variant,
) -> None:
    site = Site(tmp_path, secure_upstream, upstream)
    change = change_of(kind, how, site)
    server.push(server.group, change.before)
    envoy = connect(variant).wait_live()
    _wait_serving(envoy, ["web"], site, kind)
    server.push(server.group, change.after)
    _wait_serving(envoy, change.listeners, site, kind)
    if (kind, how, variant) in QUICK:
        return
    server.push(server.group, change.before)
    _wait_serving(envoy, ["web"], site, kind)
    server.kill()  # and the sources change before Envoy is back
    server.start()
    revision = server.push(server.group, change.after)["revision"]
    wait_until(lambda: _has_revision(server, revision), "the change is ACKed")
    _wait_serving(envoy, change.listeners, site, kind)
    envoy.restart().wait_live()
    _wait_serving(envoy, change.listeners, site, kind)


def _has_revision(server: ServerProcess, revision: int) -> bool:
    types = server.types(server.node).values()
    return bool(types) and all(each["state"] != "pending" and each["revision"] in (None, revision) for each in types)


def _wait_serving(envoy: EnvoyProcess, listeners: Sequence[str], site: Site, kind: str) -> None:
    """Wait until nothing warms and these listeners serve; nothing may have waited for a timer of 15 s."""

    def are_warm() -> bool:
        warming = ("listener_manager.total_listeners_warming", "cluster_manager.warming_clusters")
        return set(listeners) <= envoy.listener_ports().keys() and not any(map(envoy.stat, warming))

    wait_until(are_warm, "nothing warms")
    for name in listeners:
        port = envoy.wait_listener(name)
        wait_until(lambda port=port: site.serves(port, kind), f"{name} serves")  # type: ignore[misc]
    assert envoy.fetch_timeouts() == {}


@pytest.mark.parametrize("variant", [Variant.ADS_DELTA, pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak)])
def test_a_fresh_envoy_whose_cluster_and_listener_name_one_secret_by_two_sources_is_live(
    server: ServerProcess,
    connect: Connect,
    tmp_path: Path,
    secure_upstream: Callable[[str, Certificate], Upstream],
    upstream: Callable[[str], Upstream],
    variant: Variant,
) -> None:
    """The source of the listener has no timer, so without the secret Envoy would never be LIVE."""
    site = Site(tmp_path, secure_upstream, upstream)
    tls = r.downstream_tls("s1")
    context = tls["typed_config"]["common_tls_context"]
    context["validation_context_sds_secret_config"] = {"name": "trust", "sds_config": PATIENT}
    web = _direct("web", tls=tls)
    secrets = [site.certificate_secret(), r.trust_secret("trust", site.ca.pem)]
    server.push(server.group, [site.trusting_cluster("c1", r.ADS), web, *secrets])
    envoy = connect(variant).wait_live()
    _wait_serving(envoy, ["web"], site, "certificate")
