"""Access to a Kubernetes API: a kubeconfig, or the service account of the pod in which the server runs.

Files are read again when they change: a service account's token is valid for an hour, and certificates are rotated.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import yaml

from xds.codec.regular_file import read_regular
from xds.codec.text import yaml_fault
from xds.model.ip_address import address_text
from xds.services.core.source import SourceError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_FILE_BYTES = 1 << 20
# Members of a kubeconfig that are not supported. If they were ignored, requests would fail as with a wrong password.
_UNSUPPORTED = {
    "exec": "a plugin that is executed",
    "auth-provider": "an authentication provider, which Kubernetes itself no longer has",
    "username": "a password, which Kubernetes no longer takes",
    "password": "a password, which Kubernetes no longer takes",
    "as": "impersonation",
    "as-uid": "impersonation",
    "as-groups": "impersonation",
    "as-user-extra": "impersonation",
}

Json = Mapping[str, Any]
Stamp = tuple[tuple[str, int, int, int], ...]


class CredentialsError(SourceError):
    """The credentials cannot be used. The message names file and field."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """How to reach the API server. ``context`` was made from ``files``; ``read_token`` reads the token."""

    url: str
    context: ssl.SSLContext | None = None
    server_name: str = ""  # the name in the server's certificate, where it is not that of the URL
    proxy: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    files: tuple[Path, ...] = ()

    def read_token(self) -> str:
        """The present token; empty if there is none. Raises ``CredentialsError``."""
        if self.token_file is None:
            return self.token
        token = _read(self.token_file).decode(errors="replace").strip()
        if not token or not token.isprintable() or not token.isascii():
            raise CredentialsError(f"{self.token_file}: no token")
        return token


class ClusterCredentials(Protocol):
    """Credentials from which access can be loaded repeatedly."""

    def load(self) -> ApiAccess:
        """Read all files. It blocks. Raises ``CredentialsError``."""


@dataclass(frozen=True, slots=True)
class InCluster:
    """The service account of the pod that the server runs in."""

    folder: Path = ACCOUNT
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def load(self) -> ApiAccess:
        """Load access from the environment and the mounted files."""
        host, port = self.environment.get(HOST, ""), self.environment.get(PORT, "")
        if not host or not port:
            raise CredentialsError(
                f"no kubeconfig is set, and {HOST} and {PORT} show that this is not a pod of a cluster"
            )
        authority = self.folder / "ca.crt"
        context = _context(_read(authority).decode(errors="replace"), str(authority))
        url = f"https://{address_text(host, port)}"
        return ApiAccess(url, context, token_file=self.folder / "token", files=(authority,))


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A context of a kubeconfig file; the current one where none is named."""

    path: Path
    context: str = ""

    def load(self) -> ApiAccess:
        """Load access from the file, and from the files that it names relative to itself."""
        document = _read_yaml(self.path)
        name = self.context or document.get("current-context") or ""
        if not name:
            raise CredentialsError(f"{self.path}: it has no current-context, and no context is set")
        context = self._entry(document, "contexts", "context", name)
        cluster = self._entry(document, "clusters", "cluster", context.get("cluster"))
        user = self._entry(document, "users", "user", context["user"]) if context.get("user") else {}
        for member, description in _UNSUPPORTED.items():
            if user.get(member):
                raise CredentialsError(
                    f"{self.path}: the user {context['user']!r} has {member!r}: {description}, is not supported; "
                    "give token, tokenFile or client-certificate"
                )
        return self._access(cluster, user)

    def _access(self, cluster: Json, user: Json) -> ApiAccess:
        url, proxy = self._url(cluster, "server"), ""
        if cluster.get("proxy-url"):
            proxy = self._url(cluster, "proxy-url")
        files = [self.path]
        context = None
        if url.startswith("https:"):
            authority = self._pem(cluster, "certificate-authority", files)
            context = _context(authority, str(self.path), is_verified=not cluster.get("insecure-skip-tls-verify"))
            self._add_client_certificate(context, user, files)
        token, token_file = self._token(user, url)
        return ApiAccess(
            url, context, str(cluster.get("tls-server-name") or ""), proxy, token, token_file, tuple(files)
        )

    def _token(self, user: Json, url: str) -> tuple[str, Path | None]:
        token = str(user.get("token") or "")
        token_file = self.path.parent / str(user["tokenFile"]) if user.get("tokenFile") else None
        if (token or token_file) and url.startswith("http:") and not _is_loopback(url):
            raise CredentialsError(f"{self.path}: a token is not sent to {url}, without TLS")
        return token, token_file

    def _add_client_certificate(self, context: ssl.SSLContext, user: Json, files: list[Path]) -> None:
        certificate = self._pem(user, "client-certificate", files)
        key = self._pem(user, "client-key", files)
        if not certificate and not key:
            return
        if not certificate or not key:
            raise CredentialsError(f"{self.path}: client-certificate and client-key go together")
        # The ssl module reads them from files only. This file is private, and deleted at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            try:
                context.load_cert_chain(file.name, password="")
            except (ssl.SSLError, ValueError) as error:
                raise CredentialsError(f"{self.path}: client-certificate and client-key: {error}") from None

    def _pem(self, entry: Json, member: str, files: list[Path]) -> str:
        """The text of ``member`` (a file) or ``member-data`` (base64); the latter has precedence, as in kubectl."""
        data = entry.get(f"{member}-data")
        if data:
            try:
                return base64.b64decode(str(data), validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise CredentialsError(f"{self.path}: {member}-data is not base64 of a text") from None
        if not entry.get(member):
            return ""
        path = self.path.parent / str(entry[member])
        files.append(path)
        return _read(path).decode(errors="replace")

    def _url(self, entry: Json, member: str) -> str:
        url = str(entry.get(member) or "").rstrip("/")
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_valid = False
        if not is_valid:
            raise CredentialsError(f"{self.path}: {member} {url!r} is not a URL with http: or https:")
        return url

    def _entry(self, document: Json, plural: str, singular: str, name: object) -> Json:
        entries = document.get(plural)
        for each in entries if isinstance(entries, list) else []:
            if isinstance(each, dict) and each.get("name") == name:
                value = each.get(singular) or {}
                if isinstance(value, dict):
                    return value
        raise CredentialsError(f"{self.path}: {plural} has no {name!r}")


def file_stamp(paths: tuple[Path, ...]) -> Stamp:
    """A value that changes when one of the files does. A missing file has zeros. It blocks."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        stat = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns


def _context(authority: str, place: str, is_verified: bool = True) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsError(f"{place}: certificate-authority: {error}") from None
    if not is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, _FILE_BYTES).data
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from None


def _read_yaml(path: Path) -> Json:
    try:
        document = yaml.safe_load(_read(path))
    except yaml.YAMLError as error:
        fault = yaml_fault(error)
        raise CredentialsError(f"{path}:{fault.line}:{fault.column}: no YAML: {fault.detail}") from None
    if not isinstance(document, dict):
        raise CredentialsError(f"{path}: no kubeconfig: expected a mapping")
    return document


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
