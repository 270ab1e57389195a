"""The command line's side of the admin API."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from xds.cli.failure import CommandError, Exit

Json = dict[str, Any]

DEFAULT_SERVER = "http://127.0.0.1:18080"
ADDRESS_VARIABLE = "XDS_ADDR"
TOKEN_VARIABLE = "XDS_TOKEN"  # noqa: S105 - the name of a variable, not a secret
CA_VARIABLE = "XDS_CACERT"
TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0

_EXITS = {
    400: Exit.INVALID,
    401: Exit.AUTH,
    403: Exit.AUTH,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    413: Exit.INVALID,
    415: Exit.INVALID,
    422: Exit.INVALID,
    503: Exit.UNREACHABLE,
}


class Client:
    """One server's admin API; errors become ``CommandError``."""

    def __init__(self, server: str = "") -> None:
        self.server = (server or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_SERVER).rstrip("/")
        if "://" not in self.server:
            self.server = f"http://{self.server}"
        token = os.environ.get(TOKEN_VARIABLE)
        self._http = httpx.Client(
            base_url=f"{self.server}/api/v1",
            headers={"authorization": f"Bearer {token}"} if token else {},
            verify=_trusted(),
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Json:
        """One request; its JSON. Raises ``CommandError`` for whatever is no success."""
        try:
            answer = self._http.request(method, path, params=query, headers=headers, json=body)
        except httpx.InvalidURL as error:
            raise CommandError(Exit.USAGE, f"{self.server}: {error}") from None
        except httpx.TransportError as error:
            raise CommandError(Exit.UNREACHABLE, f"cannot reach {self.server}: {error}") from None
        if not answer.is_success:
            raise CommandError(_EXITS.get(answer.status_code, Exit.NEGATIVE), _explain(answer))
        found: Json = answer.json()
        return found

    def items(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Json]:
        """All items of a list, page by page."""
        token = ""
        while True:
            page = self.call("GET", path, {**(query or {}), **({"page_token": token} if token else {})})
            yield from page["items"]
            token = page.get("next_page_token", "")
            if not token:
                return


def _trusted() -> ssl.SSLContext | bool:
    ca = os.environ.get(CA_VARIABLE)
    if not ca:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{CA_VARIABLE}={ca}: {error}") from None


def _explain(answer: httpx.Response) -> str:
    try:
        problem: Json = answer.json()
    except ValueError:
        return f"{answer.status_code} {answer.reason_phrase}"
    lines = [_finding(error) for error in problem.get("errors", [])]
    return "\n".join(lines) or str(problem.get("detail") or answer.reason_phrase)


def _finding(error: Json) -> str:
    place = " ".join(part for part in (error.get("source"), error.get("resource"), error.get("pointer")) if part)
    return f"{place}: {error.get('detail')}" if place else str(error.get("detail"))
