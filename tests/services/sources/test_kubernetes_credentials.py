"""Kubeconfigs, service accounts, and what happens when their files change."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes_api import FakeKubernetes, endpoint, endpoint_slice, service
from tests.support.pki import Certificate, CertificateAuthority
from tests.support.recording_sink import RecordingSink, running_source
from xds.services.source_settings import KubernetesSettings
from xds.services.sources.kubernetes import KubernetesSource
from xds.services.sources.kubernetes_client import ClientLimits, KubernetesClient
from xds.services.sources.kubernetes_credentials import (
    ApiAccess,
    ClusterCredentials,
    CredentialsError,
    InCluster,
    Kubeconfig,
)
from xds.services.sources.kubernetes_list_watch import ApiError

Json = dict[str, Any]
SERVICES_PATH = "/api/v1/services"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(path: Path, cluster: Json, user: Json, **context: Any) -> Path:
    document = {
        "clusters": [{"name": "other", "cluster": {}}, {"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "main",
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def ca(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@asynccontextmanager
async def secure_api(certificate: Certificate, client_ca: CertificateAuthority | None = None) -> AsyncIterator[Any]:
    """A fake with TLS; with ``client_ca`` it wants a client certificate."""
    context = certificate.server_context()
    if client_ca is not None:
        context.load_verify_locations(client_ca.path)
        context.verify_mode = ssl.CERT_REQUIRED
    async with FakeKubernetes(tls=context) as api:
        yield api


async def ask(credentials: ClusterCredentials) -> Any:
    """One list, as the source asks for it."""
    client = KubernetesClient(credentials, ClientLimits(connect_s=5.0, answer_s=5.0))
    try:
        return await client.get(SERVICES_PATH, {"limit": "100"})
    finally:
        await client.close()


@asynccontextmanager
async def following(credentials: ClusterCredentials) -> AsyncIterator[RecordingSink]:
    sink = RecordingSink()
    quick = {"retry_s": 0.05, "longest_retry_s": 0.2, "watch_s": 1.0}
    source = KubernetesSource("k8s", KubernetesSettings(kind="kubernetes").model_copy(update=quick), credentials)
    async with running_source(source, sink):
        yield sink


# Kubeconfigs


@pytest.mark.parametrize("inline", [True, False])
async def test_authority_and_client_certificate_come_from_the_file_or_beside_it(
    tmp_path: Path, ca: CertificateAuthority, inline: bool
) -> None:
    mine = ca.issue("me")
    async with secure_api(ca.issue("api"), ca) as api:
        if inline:
            cluster = {"certificate-authority-data": b64(ca.pem)}
            user = {"client-certificate-data": b64(mine.pem), "client-key-data": b64(mine.key_pem)}
        else:  # relative to the kubeconfig
            cluster = {"certificate-authority": ca.path.name}
            user = {"client-certificate": mine.path.name, "client-key": mine.key_path.name}
        path = config(tmp_path / "kubeconfig", {"server": api.url, **cluster}, user)
        assert (await ask(Kubeconfig(path)))["kind"] == "ServiceList"
        stranger = config(tmp_path / "stranger", {"server": api.url, **cluster}, {})
        with pytest.raises(ApiError, match="Error"):
            await ask(Kubeconfig(stranger))


async def test_a_server_of_another_authority_is_refused(tmp_path: Path, ca: CertificateAuthority) -> None:
    other = CertificateAuthority(tmp_path, "other-ca")
    async with secure_api(other.issue("api")) as api:
        api.tokens = {"t"}
        cluster = {"server": api.url, "certificate-authority-data": b64(ca.pem)}
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(Kubeconfig(config(tmp_path / "k", cluster, {"token": "t"})))
        assert not api.requests  # not even the token was sent
        insecure = {"server": api.url, "insecure-skip-tls-verify": True}
        assert await ask(Kubeconfig(config(tmp_path / "i", insecure, {"token": "t"})))


async def test_the_name_in_the_servers_certificate_may_be_set(tmp_path: Path, ca: CertificateAuthority) -> None:
    async with secure_api(ca.issue("api", ("kubernetes.default.svc",))) as api:
        cluster = {"server": api.url, "certificate-authority": str(ca.path)}
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(Kubeconfig(config(tmp_path / "k", cluster, {})))
        named = {**cluster, "tls-server-name": "kubernetes.default.svc"}
        assert await ask(Kubeconfig(config(tmp_path / "k", named, {})))


def test_a_context_is_chosen(tmp_path: Path) -> None:
    path = config(tmp_path / "k", {"server": "http://127.0.0.1:1"}, {"token": "t"})
    document = yaml.safe_load(path.read_text())
    document["users"].append({"name": "v", "user": {"token": "of v"}})
    document["contexts"].append({"name": "second", "context": {"cluster": "c", "user": "v"}})
    path.write_text(yaml.safe_dump(document))
    assert Kubeconfig(path).load().read_token() == "t"
    assert Kubeconfig(path, "second").load().read_token() == "of v"


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"exec": {"command": "aws"}}, "'exec': a plugin that is executed"),
        ({"auth-provider": {"name": "gcp"}}, "'auth-provider'"),
        ({"username": "me", "password": "x"}, "'username': a password"),
        ({"token": "t", "as": "root"}, "'as': impersonation"),
        ({"client-certificate-data": b64("x")}, "client-certificate and client-key go together"),
        ({"client-certificate-data": b64("x"), "client-key-data": b64("y")}, "client-certificate and client-key: "),
        ({"client-certificate": "absent.pem", "client-key": "absent.key"}, "absent.pem: No such file"),
        ({"client-certificate-data": "!", "client-key-data": "!"}, "client-certificate-data is not base64"),
    ],
)
def test_unsupported_credentials_are_refused_by_name(tmp_path: Path, user: Json, named: str) -> None:
    path = config(tmp_path / "kubeconfig", {"server": "https://127.0.0.1:1"}, user)
    with pytest.raises(CredentialsError) as error:
        Kubeconfig(path).load()
    assert named in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"current-context": ""}, "no current-context"),
        ({"current-context": "absent"}, "contexts has no 'absent'"),
        ({"clusters": []}, "clusters has no 'c'"),
        ({"clusters": "x"}, "clusters has no 'c'"),
        ({"users": []}, "users has no 'u'"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "server '' is not a URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": "ftp://x"}}]}, "server 'ftp://x' is not a URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://x:99999"}}]}, "is not a URL"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://x", "proxy-url": "socks5://x"}}]},
            "proxy-url 'socks5://x' is not a URL",
        ),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://x", "certificate-authority-data": b64("no")}}]},
            "certificate-authority: ",
        ),
        ({"clusters": [{"name": "c", "cluster": {"server": "http://192.0.2.1"}}]}, "a token is not sent to"),
    ],
)
def test_an_incomplete_kubeconfig_is_reported(tmp_path: Path, change: Json, named: str) -> None:
    path = config(tmp_path / "kubeconfig", {"server": "https://127.0.0.1:1"}, {"token": "secret"})
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    with pytest.raises(CredentialsError) as error:
        Kubeconfig(path).load()
    assert named in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("content", ["[]", "a: [", "x" * 2_000_000, ""])
def test_a_file_that_is_no_kubeconfig_is_reported(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(CredentialsError, match=str(path)):
        Kubeconfig(path).load()
    path.unlink()
    with pytest.raises(CredentialsError, match="No such file"):
        Kubeconfig(path).load()


# Service accounts


def account(folder: Path, ca: CertificateAuthority, token: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "ca.crt").write_text(ca.pem)
    (folder / "token").write_text(f"{token}\n")
    return folder


def in_cluster(folder: Path, port: int) -> InCluster:
    return InCluster(folder, {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)})


def test_missing_credentials_outside_of_a_cluster_are_reported(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="no kubeconfig is set, and KUBERNETES_SERVICE_HOST"):
        InCluster(tmp_path, {}).load()


def test_an_ipv6_cluster_has_an_address_in_brackets(tmp_path: Path, ca: CertificateAuthority) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert InCluster(account(tmp_path / "a", ca, "t"), environment).load().url == "https://[fd00::1]:443"


@pytest.mark.parametrize("token", ["", "a\nb", "é"])
def test_an_invalid_token_is_reported(tmp_path: Path, ca: CertificateAuthority, token: str) -> None:
    access = in_cluster(account(tmp_path / "a", ca, token), 1).load()
    with pytest.raises(CredentialsError, match="token: no token"):
        access.read_token()


async def test_a_token_is_rotated_under_a_running_source(tmp_path: Path, ca: CertificateAuthority) -> None:
    """As the kubelet does: a symbolic link to a new folder."""
    folder = account(tmp_path / "account", ca, "first")
    async with secure_api(ca.issue("api")) as api:
        api.tokens = {"first"}
        api.put(service("web"), endpoint_slice("a", "web", endpoint("10.0.0.1")))
        async with following(in_cluster(folder, api.port)) as sink:
            await sink.wait_until(lambda: sink.places("web.shop") == {"10.0.0.1:8080"})
            (tmp_path / "next").write_text("second")
            (folder / "token").unlink()
            (folder / "token").symlink_to(tmp_path / "next")
            api.tokens = {"second"}
            api.cut()
            api.put(endpoint_slice("a", "web", endpoint("10.0.0.2")))
            await sink.wait_until(lambda: sink.places("web.shop") == {"10.0.0.2:8080"})
            assert not sink.failures


async def test_the_authority_of_the_server_is_rotated_under_a_running_source(
    tmp_path: Path, ca: CertificateAuthority
) -> None:
    folder = account(tmp_path / "account", ca, "t")
    other = CertificateAuthority(tmp_path, "other-ca")
    async with secure_api(ca.issue("api")) as api:
        api.put(service("web"), endpoint_slice("a", "web", endpoint("10.0.0.1")))
        async with following(in_cluster(folder, api.port)) as sink:
            await sink.wait_until(lambda: sink.places("web.shop") == {"10.0.0.1:8080"})
            await api.kill()
            api.use_tls(other.issue("api-2").server_context())
            await api.start()
            await sink.wait_until(lambda: any("CERTIFICATE_VERIFY_FAILED" in each for each in sink.failures))
            (folder / "ca.crt").write_text(other.pem)
            api.put(endpoint_slice("a", "web", endpoint("10.0.0.2")))
            await sink.wait_until(lambda: sink.places("web.shop") == {"10.0.0.2:8080"})


async def test_a_kubeconfig_is_read_again_when_it_changes(tmp_path: Path) -> None:
    async with FakeKubernetes(tokens={"right"}) as api:
        path = config(tmp_path / "k", {"server": api.url}, {"token": "wrong"})
        async with following(Kubeconfig(path)) as sink:
            await sink.wait_until(lambda: any("401" in message for message in sink.failures))
            config(path, {"server": api.url}, {"token": "right"})
            await sink.wait_until(lambda: ("replace", "") in sink.calls)


async def test_a_changed_server_in_the_kubeconfig_is_used_though_the_first_still_answers(tmp_path: Path) -> None:
    async with FakeKubernetes() as first, FakeKubernetes() as second:
        first.put(service("web"), endpoint_slice("a", "web", endpoint("10.0.0.1")))
        second.put(service("web"), endpoint_slice("a", "web", endpoint("10.0.0.2")))
        path = config(tmp_path / "k", {"server": first.url}, {})
        async with following(Kubeconfig(path)) as sink:
            await sink.wait_until(lambda: sink.places("web.shop") == {"10.0.0.1:8080"})
            config(path, {"server": second.url}, {})
            await sink.wait_until(lambda: sink.places("web.shop") == {"10.0.0.2:8080"})
            assert not sink.failures


async def test_a_missing_kubeconfig_is_reported_and_read_again_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "k"
    async with FakeKubernetes() as api, following(Kubeconfig(path)) as sink:
        await sink.wait_until(lambda: any("No such file" in message for message in sink.failures))
        config(path, {"server": api.url}, {})
        await sink.wait_until(lambda: ("replace", "") in sink.calls)


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    class Direct:
        def load(self) -> ApiAccess:
            return ApiAccess(api.url)

    async with FakeKubernetes() as api:
        assert await ask(Direct())
