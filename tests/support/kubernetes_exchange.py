"""Requests and writes to a Kubernetes API, one after the other, and the answers of a server.

The same exchange is played with a real API server, whose answers are recorded, and with the fake. Versions, dates and
fields that only the real one has are removed from the answers, so that the two can be compared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import httpx

from tests.support.kubernetes_api import SERVICES, SLICES, endpoint, endpoint_slice, service

Json = dict[str, Any]

SERVICES_PATH = "/api/v1/namespaces/shop/services"
SLICES_PATH = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
WATCH_S = 8  # a real server sends a bookmark two seconds before the end
SHORT_WATCH_S = 2
FUTURE = "900000000"
_SERVER_METADATA = ("uid", "creationTimestamp", "managedFields", "generation", "annotations")
_SERVICE_FIELDS = ("type", "ipFamilies", "ports", "externalName")
_PORT_FIELDS = ("name", "port", "protocol")


class Writer(Protocol):
    """Writes objects: the fake itself, or a client of the real server."""

    def put(self, *documents: Json) -> None:
        """Create or replace."""

    def delete(self, plural: str, name: str, namespace: str = "shop") -> None:
        """Delete."""


Do = Callable[[Callable[[], None]], Awaitable[None]]


async def play(
    url: str,
    verify: Any,
    writer: Writer,
    do: Do,
    forget: Callable[[], None],
    tokens: tuple[str, str, str],
    watch_s: int = WATCH_S,
    short_watch_s: int = SHORT_WATCH_S,
) -> list[Json]:
    """The whole exchange. ``do`` runs a write; ``forget`` makes the server forget old versions.

    ``tokens``: one with rights, one without, and one that nobody has. ``watch_s`` and ``short_watch_s`` are how long
    watches last; the first must see all writes and a bookmark.
    """
    good, stranger, nobody = tokens
    headers = {"accept": "application/json"}
    async with httpx.AsyncClient(base_url=url, verify=verify, trust_env=False, headers=headers, timeout=30) as client:
        player = _Player(client, good)
        await do(lambda: writer.put(*_first()))
        for path in (SERVICES_PATH, SLICES_PATH):
            await player.ask(path, {})
        page = await player.ask(SERVICES_PATH, {"limit": "2"})
        await player.ask(SERVICES_PATH, {"limit": "2", "continue": page["metadata"]["continue"]})
        await player.ask(SERVICES_PATH, {"limit": "2", "continue": "bm90IGEgdG9rZW4"})
        await player.ask(SERVICES_PATH, {"limit": "1"})
        await player.ask(SERVICES_PATH, {"labelSelector": "app=web"})
        await player.ask("/api/v1/absent", {})
        await player.ask(SERVICES_PATH, {}, stranger)
        await player.ask(SERVICES_PATH, {}, nobody)
        begin = (await player.ask(SLICES_PATH, {}))["metadata"]["resourceVersion"]
        watch = asyncio.create_task(player.watch(SLICES_PATH, begin, watch_s))
        await player.watching.wait()
        for write in _writes(writer):
            await do(write)
        lines = await watch
        # Resumed in the middle: what came behind that event, once.
        middle = next(line["object"]["metadata"]["resourceVersion"] for line in lines if line["type"] == "MODIFIED")
        await player.watch(SLICES_PATH, middle, short_watch_s)
        await player.watch(SLICES_PATH, FUTURE, short_watch_s)
        await do(forget)
        await player.watch(SLICES_PATH, begin, short_watch_s)
        return player.answers


def _first() -> list[Json]:
    labelled = service("web", ports=(("http", 80),))
    labelled["metadata"]["labels"] = {"app": "web"}
    return [
        labelled,
        service("db"),
        service("mail", ports=(), type="ExternalName", externalName="mail.example.org", ipFamilies=None),
        endpoint_slice("web-a", "web", endpoint("10.0.0.1", pod="p1", zone="z1", hints=["z2"], nodeName="n1")),
        endpoint_slice("web-6", "web", endpoint("fd00::1", hostname="h"), family="IPv6", ports=(("http", 80),)),
    ]


def _writes(writer: Writer) -> list[Callable[[], None]]:
    draining = endpoint("10.0.0.1", ready=False, serving=True, terminating=True, pod="p1")
    return [
        lambda: writer.put(endpoint_slice("db-a", "db", endpoint("10.0.0.5"))),
        lambda: writer.put(endpoint_slice("web-a", "web", draining)),
        lambda: writer.put(endpoint_slice("web-a", "web")),
        lambda: writer.delete(SLICES, "db-a"),
        lambda: writer.delete(SERVICES, "db"),
    ]


class _Player:
    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self.answers: list[Json] = []
        self._client = client
        self._token = token
        self.watching = asyncio.Event()  # a watch was answered

    async def ask(self, path: str, query: dict[str, str], token: str = "") -> Any:
        """Send a request; the answer. Its comparable form is added to ``answers``."""
        answer = await self._client.get(path, params=query, headers=self._who(token))
        body = answer.json()
        asked = {name: value if name == "limit" else name for name, value in query.items()}
        self.answers.append({"ask": path, "query": asked, "status": answer.status_code, "body": _plain(body)})
        return body

    async def watch(self, path: str, version: str, timeout_s: int) -> list[Json]:
        """The lines of a watch until its end."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        given = {**query, "timeoutSeconds": str(timeout_s)}
        async with self._client.stream("GET", path, params=given, headers=self._who()) as answer:
            status = answer.status_code
            self.watching.set()
            lines = [json.loads(line) async for line in answer.aiter_lines()]
        raw = [line for line in lines if line["type"] != "BOOKMARK"]
        has_bookmark = len(raw) < len(lines)
        plain = [{"type": line["type"], "object": _plain(line["object"])} for line in raw]
        self.answers.append({"watch": path, "status": status, "lines": plain, "bookmarks": has_bookmark})
        for line in lines:
            if line["type"] == "BOOKMARK":
                metadata = {name for name, value in line["object"]["metadata"].items() if value is not None}
                assert metadata == {"resourceVersion"} or "creationTimestamp" in metadata
        return lines

    def _who(self, token: str = "") -> dict[str, str]:
        return {"authorization": f"Bearer {token or self._token}"}


def _plain(document: Any) -> Any:
    """A document without the fields that differ between two servers."""
    if document.get("kind") == "Status":
        return {name: document.get(name) for name in ("kind", "apiVersion", "status", "reason", "code")}
    if "items" in document:
        listed = {name: document.get(name) for name in ("kind", "apiVersion")}
        has_more = sorted(name for name, value in document["metadata"].items() if value)
        return {**listed, "metadata": has_more, "items": [_plain(one) for one in document["items"]]}
    metadata = {name: value for name, value in document["metadata"].items() if name not in _SERVER_METADATA}
    assert int(metadata.pop("resourceVersion")) > 0
    plain = {**document, "metadata": metadata}
    plain.pop("status", None)
    if "spec" in plain:
        spec = {name: plain["spec"].get(name) for name in _SERVICE_FIELDS if plain["spec"].get(name)}
        spec["ports"] = [{name: one[name] for name in _PORT_FIELDS if name in one} for one in spec.get("ports", [])]
        plain["spec"] = spec
    for one in plain.get("endpoints") or ():
        one.get("targetRef", {}).pop("uid", None)
    if "endpoints" in plain:
        plain["endpoints"] = plain["endpoints"] or []
    return plain
