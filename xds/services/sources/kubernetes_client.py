"""Requests to a Kubernetes API: pages of lists, and the lines of watches. Everything that is read is bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from xds.model.units import MIB
from xds.services.sources.kubernetes_credentials import ApiAccess, ClusterCredentials, Stamp, file_stamp
from xds.services.sources.kubernetes_list_watch import ApiError, ConnectionLostError, read_lines, status_error
from xds.version import __version__

ERROR_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Timeouts, and size limits of what is read. A watch without data for ``silence_s`` is taken for dead."""

    connect_s: float = 10.0
    answer_s: float = 30.0  # without any data of an answer
    page_s: float = 120.0  # for a whole page
    silence_s: float = 75.0
    page_bytes: int = 64 * MIB
    event_bytes: int = 8 * MIB  # etcd takes objects of 1.5 MiB


class KubernetesClient:
    """A client of one API server, for one request at a time.

    Credentials are loaded again when one of their files changes, and after ``close``. The token is read for each
    request.
    """

    def __init__(self, credentials: ClusterCredentials, limits: ClientLimits | None = None) -> None:
        self._credentials = credentials
        self._limits = limits or ClientLimits()
        self._access: ApiAccess | None = None
        self._stamp: Stamp = ()
        self._http: httpx.AsyncClient | None = None
        self.url = ""  # of the API server of the last request

    async def close(self) -> None:
        """Close the connection, and forget the credentials. The next request opens another."""
        http, self._http, self._access = self._http, None, None
        if http is not None:
            await http.aclose()

    async def get(self, path: str, query: Mapping[str, str]) -> object:
        """The JSON of an answer. Raises ``ApiError``, ``CredentialsError``."""
        try:
            async with (
                asyncio.timeout(self._limits.page_s),
                self._request(path, query, self._limits.answer_s) as answer,
            ):
                body = await _body(answer, self._limits.page_bytes)
        except TimeoutError:
            raise ApiError(f"{path}: the answer was not complete after {self._limits.page_s:g} s") from None
        try:
            document: object = json.loads(body)
        except (ValueError, RecursionError):
            raise ApiError(f"{path}: the answer is not valid JSON") from None
        return document

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch, as soon as the server has accepted it. Raises ``ApiError``, ``CredentialsError``.

        The lines end when the server ends the watch, and raise ``ApiError`` when the connection is lost, and
        ``TimeoutError`` when nothing has come for ``silence_s``.
        """
        async with self._request(path, query, self._limits.silence_s) as answer:
            yield _lines(answer, self._limits.event_bytes)

    @asynccontextmanager
    async def _request(self, path: str, query: Mapping[str, str], read_s: float) -> AsyncIterator[httpx.Response]:
        http, access = await self._connection()
        headers = {"accept": "application/json", "user-agent": f"xds-server/{__version__}"}
        if "watch" in query:
            headers["accept-encoding"] = "identity"
        token = await asyncio.to_thread(access.read_token)
        if token:
            headers["authorization"] = f"Bearer {token}"
        extensions = {"sni_hostname": access.server_name} if access.server_name else {}
        timeout = httpx.Timeout(read_s, connect=self._limits.connect_s)
        request = http.build_request(
            "GET", f"{access.url}{path}", params=query, headers=headers, timeout=timeout, extensions=extensions
        )
        try:
            answer = await http.send(request, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unreachable(access.url, error) from error
        try:
            if answer.status_code != httpx.codes.OK:
                raise await self._error(path, answer)
            yield answer
        finally:
            await answer.aclose()

    async def _connection(self) -> tuple[httpx.AsyncClient, ApiAccess]:
        if self._access is not None and self._http is not None:
            if self._stamp == await asyncio.to_thread(file_stamp, self._access.files):
                return self._http, self._access
            await self.close()
        access, self._stamp = await asyncio.to_thread(self._load)
        self._access = access
        self.url = access.url
        self._http = httpx.AsyncClient(
            verify=access.context if access.context is not None else False,
            proxy=access.proxy or None,
            trust_env=False,  # the kubeconfig alone decides
            follow_redirects=False,  # the token must not go to another server
            limits=httpx.Limits(max_connections=2, max_keepalive_connections=1),
        )
        return self._http, access

    def _load(self) -> tuple[ApiAccess, Stamp]:
        access = self._credentials.load()
        return access, file_stamp(access.files)

    async def _error(self, path: str, answer: httpx.Response) -> ApiError:
        try:
            body = await _body(answer, ERROR_BYTES)
            status = json.loads(body)
        except (ApiError, ValueError, RecursionError):
            status = None
        code = answer.status_code
        if not isinstance(status, dict):
            status = {"reason": answer.reason_phrase, "message": "the answer is not a Status object of Kubernetes"}
        error = status_error(f"GET {path}", {**status, "code": code})
        if answer.headers.get("retry-after", "").isdecimal():
            error.retry_after_s = max(error.retry_after_s, float(answer.headers["retry-after"][:9]))
        return error


async def _body(answer: httpx.Response, limit: int) -> bytes:
    body = bytearray()
    try:
        async for data in answer.aiter_bytes():
            body += data
            if len(body) > limit:
                raise ApiError(f"{answer.url.path}: an answer of more than {limit} bytes")
    except httpx.HTTPError as error:
        raise _unreachable(str(answer.url.copy_with(query=None)), error) from error
    return bytes(body)


async def _lines(answer: httpx.Response, limit: int) -> AsyncIterator[bytes]:
    buffer = bytearray()
    try:
        async for data in answer.aiter_bytes():
            for line in read_lines(buffer, data, limit):
                yield line
    except httpx.ReadTimeout:
        raise TimeoutError(f"{answer.url.path}: the watch sent nothing") from None
    except httpx.HTTPError as error:
        raise _unreachable(str(answer.url.copy_with(query=None)), error) from error


def _unreachable(url: str, error: Exception) -> ConnectionLostError:
    return ConnectionLostError(f"{url}: {type(error).__name__}: {error}".rstrip(": "))
