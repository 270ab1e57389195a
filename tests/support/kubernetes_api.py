"""A Kubernetes API of Services and EndpointSlices on the loopback, as strict as a real one, with faults on demand.

It has a history as etcd has: each write has a revision, which is the resource version of the object and of the lists
read then. Watches replay the history from a version; compacted versions answer 410. Mistakes of a client are collected
in ``complaints``: unknown parameters, a watch from another version than the client's last, a watch without bookmarks.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import json
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.process import LOOPBACK

Json = dict[str, Any]

SERVICES, SLICES = "services", "endpointslices"
_GROUPS = {SERVICES: "api/v1", SLICES: "apis/discovery.k8s.io/v1"}
_KINDS = {SERVICES: "Service", SLICES: "EndpointSlice"}
_LIST_PARAMETERS = {"limit", "continue", "labelSelector"}
_WATCH_PARAMETERS = {"watch", "resourceVersion", "allowWatchBookmarks", "timeoutSeconds", "labelSelector"}
_HEAD_END = b"\r\n\r\n"


def service(name: str, namespace: str = "shop", ports: Any = (("", 80),), **spec: Any) -> Json:
    """A Service as the API server answers it."""
    listed: list[Json] = [{"port": number, "protocol": "TCP"} for _, number in ports]
    for one, (label, _) in zip(listed, ports, strict=True):
        if label:
            one["name"] = label
    given: Json = {"type": "ClusterIP", "ipFamilies": ["IPv4"], "ports": listed, **spec}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": given}


def endpoint(address: str, *, ready: bool | None = True, **more: Any) -> Json:
    """An endpoint of a slice. ``serving``, ``terminating``: conditions; ``pod``: its target."""
    conditions: Json = {"ready": ready, **{name: more.pop(name) for name in ("serving", "terminating") if name in more}}
    if "pod" in more:
        pod = more.pop("pod")
        more["targetRef"] = {"kind": "Pod", "name": pod, "uid": more.pop("uid", f"uid-{pod}"), "namespace": "shop"}
    if "hints" in more:
        more["hints"] = {"forZones": [{"name": zone} for zone in more["hints"]]}
    return {"addresses": [address], "conditions": conditions, **more}


def endpoint_slice(
    name: str,
    service_name: str,
    *endpoints: Json,
    namespace: str = "shop",
    family: str = "IPv4",
    ports: Any = (("", 8080),),
    labels: Mapping[str, str] | None = None,
) -> Json:
    """A slice of a Service."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service_name, **(labels or {})},
        },
        "addressType": family,
        "ports": [{"name": label, "port": number, "protocol": "TCP"} for label, number in ports],
        "endpoints": list(endpoints),
    }


@dataclass(frozen=True, slots=True)
class Event:
    """One write of the history."""

    version: int
    type: str
    plural: str
    object: Json


@dataclass
class Faults:
    """The faults of the server, until they are unset."""

    answers: list[tuple[int, bytes, dict[str, str]]] = field(default_factory=list)  # of the next requests
    is_silent: bool = False  # watches are accepted, and say nothing
    holds_answers: bool = False  # requests are read, and never answered
    expired_watches: int = 0  # so many watches are answered with 410
    expired_pages: int = 0  # so many continue tokens have expired
    lines: list[bytes] = field(default_factory=list)  # that the next watch says first
    ends_watches: bool = False  # watches end at once
    trickles: bool = False  # watches say blank lines only, and never end


class FakeKubernetes:
    """The server. ``tokens`` are the accepted ones; if empty, no token is needed."""

    def __init__(self, tokens: set[str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.tokens = tokens or set()
        self.without_rights: set[str] = set()  # tokens
        self.forbidden: set[str] = set()  # paths
        self.faults = Faults()
        self.complaints: list[str] = []
        self.requests: list[tuple[float, str]] = []
        self.kinds: Counter[str] = Counter()
        self.bookmark_s = 0.2
        self.version = 1_000
        self._compacted = 0
        self._objects: dict[str, dict[tuple[str, str], Json]] = {SERVICES: {}, SLICES: {}}
        self._history: list[Event] = []
        self._changed = asyncio.Event()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._trickling: set[asyncio.StreamWriter] = set()
        self._last_versions: dict[str, int] = {}  # the last version that a client received, by path
        self.port = 0

    # Life

    async def __aenter__(self) -> FakeKubernetes:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """Listen; on the same port as before."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        """Stop listening, and reset every connection."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._serving.values(), return_exceptions=True)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Use another certificate after the next start."""
        self._tls = context

    def cut(self) -> None:
        """Reset every connection. Answers on their way may be lost."""
        self._last_versions.clear()
        for writer, task in self._serving.items():
            writer.transport.abort()
            task.cancel()

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http{'s' if self._tls else ''}://{LOOPBACK}:{self.port}"

    # Writing, as kubectl and controllers do

    def put(self, *objects: Json) -> None:
        """Create or replace objects."""
        for each in objects:
            plural = SLICES if "addressType" in each else SERVICES
            place = (each["metadata"]["namespace"], each["metadata"]["name"])
            is_new = place not in self._objects[plural]
            self._write("ADDED" if is_new else "MODIFIED", plural, place, each)

    def delete(self, plural: str, name: str, namespace: str = "shop") -> None:
        """Delete an object, which must exist."""
        place = (namespace, name)
        self._write("DELETED", plural, place, self._objects[plural][place])

    def touch(self, times: int = 1) -> None:
        """Write other objects: the version rises, and bookmarks have it."""
        self.version += times
        self._wake()

    def objects(self, plural: str) -> dict[tuple[str, str], Json]:
        """The objects by namespace and name."""
        return self._objects[plural]

    def lose_events(self) -> None:
        """Forget the history without an error: watches miss these events."""
        self._history.clear()

    def compact(self) -> None:
        """Forget the history: older versions answer 410."""
        self._compacted = self.version
        self._history.clear()

    def lose_everything(self, version: int) -> None:
        """Become an etcd that was wiped or restored: without objects, and with another history."""
        self._objects = {SERVICES: {}, SLICES: {}}
        self._history.clear()
        self.version = self._compacted = version
        self._last_versions.clear()

    def _write(self, kind: str, plural: str, place: tuple[str, str], document: Json) -> None:
        self.version += 1
        stored = copy.deepcopy(document)
        stored["metadata"] |= {"resourceVersion": str(self.version), "managedFields": [{"manager": "test"}]}
        if kind == "DELETED":
            del self._objects[plural][place]
        else:
            self._objects[plural][place] = stored
        self._history.append(Event(self.version, kind, plural, stored))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[writer] = task
        try:
            while True:
                head = await reader.readuntil(_HEAD_END)
                if not await self._answer(head.decode(), writer):
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            del self._serving[writer]
            writer.transport.abort()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        request, *lines = head.split("\r\n")
        method, target, _ = request.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        is_watch = query.get("watch") in ("1", "true")
        kind = "watch" if is_watch else "probe" if query.get("limit") == "1" else "list"
        self.kinds[kind] += 1
        self.requests.append((time.monotonic(), f"{kind} {target}"))
        if self.faults.holds_answers:
            await asyncio.Event().wait()
        refusal = self._refusal(method, parts.path, headers)
        if refusal is not None:
            _send(writer, *refusal)
            return True
        plural, namespace = _place(parts.path)
        self._complain_of(plural, parts.path, query, is_watch)
        if is_watch:
            await self._watch(writer, parts.path, plural, namespace, query)
            return False
        _send(writer, *self._list(parts.path, plural, namespace, query))
        return True

    def _refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]] | None:
        if self.faults.answers:
            return self.faults.answers.pop(0)
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens and token not in self.tokens:
            return _status(401, "Unauthorized", "Unauthorized")
        if path in self.forbidden or token in self.without_rights:
            return _status(403, "Forbidden", f'{_place(path)[0]} is forbidden: User "reader" cannot list it')
        if method != "GET" or not _place(path)[0]:
            self.complaints.append(f"{method} {path}")
            return _status(404, "NotFound", "the server could not find the requested resource")
        if "application/json" not in headers.get("accept", ""):
            self.complaints.append(f"{path}: accept {headers.get('accept')}")
        return None

    def _complain_of(self, plural: str, path: str, query: Mapping[str, str], is_watch: bool) -> None:
        unknown = query.keys() - (_WATCH_PARAMETERS if is_watch else _LIST_PARAMETERS)
        if unknown:
            self.complaints.append(f"{path}: parameters {sorted(unknown)}")
        if not is_watch:
            return
        if query.get("allowWatchBookmarks") != "true" or not query.get("timeoutSeconds", "").isdecimal():
            self.complaints.append(f"{path}: a watch without bookmarks, or without timeout")
        told = self._last_versions.get(path)
        if told is not None and query.get("resourceVersion") != str(told):
            self.complaints.append(f"{path}: a watch from {query.get('resourceVersion')}, the client was told {told}")

    # Lists

    def _list(
        self, path: str, plural: str, namespace: str, query: Mapping[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        version, start = self.version, 0
        if "continue" in query:
            try:
                version, start = json.loads(base64.b64decode(query["continue"]))
            except ValueError:
                return _status(400, "BadRequest", "invalid continue token")
            if version < self._compacted or self.faults.expired_pages:
                self.faults.expired_pages = max(self.faults.expired_pages - 1, 0)
                detail = "The provided continue parameter is too old to display a consistent list result."
                return _status(410, "Expired", detail)
        items = [each for each in self._at(version, plural) if _is_chosen(each, namespace, query)]
        limit = int(query.get("limit", "0")) or len(items)
        metadata: Json = {"resourceVersion": str(version)}
        if len(items) > start + limit:
            metadata["continue"] = base64.b64encode(json.dumps([version, start + limit]).encode()).decode()
            metadata["remainingItemCount"] = len(items) - start - limit
        elif query.get("limit") != "1":
            self._last_versions[path] = version
        page = items[start : start + limit]
        body = {
            "kind": f"{_KINDS[plural]}List",
            "apiVersion": _GROUPS[plural].partition("/")[2],
            "metadata": metadata,
            "items": page,
        }
        return 200, json.dumps(body).encode(), {}

    def _at(self, version: int, plural: str) -> list[Json]:
        """The objects as they were at a version."""
        objects = dict(self._objects[plural])
        for event in reversed(self._history):
            if event.version <= version or event.plural != plural:
                continue
            metadata = event.object["metadata"]
            place = (metadata["namespace"], metadata["name"])
            before = [
                one for one in self._history if one.plural == plural and one.version < event.version and _is(one, place)
            ]
            if event.type == "ADDED":
                objects.pop(place, None)
            elif before:
                objects[place] = before[-1].object
        return [objects[place] for place in sorted(objects)]

    # Watches

    async def _watch(
        self, writer: asyncio.StreamWriter, path: str, plural: str, namespace: str, query: Mapping[str, str]
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        lines, self.faults.lines = self.faults.lines, []
        for line in lines:
            _send_chunk(writer, line)
        ends_s = time.monotonic() + int(query["timeoutSeconds"])
        if self.faults.is_silent:
            await asyncio.Event().wait()
        while self.faults.trickles or writer in self._trickling:
            self._trickling.add(writer)
            _send_chunk(writer, b"\n")
            await writer.drain()
            await asyncio.sleep(0.1)
        if self.faults.ends_watches:
            return await _end(writer)
        seen = int(query["resourceVersion"])
        if seen < self._compacted or self.faults.expired_watches:
            self.faults.expired_watches = max(self.faults.expired_watches - 1, 0)
            self._last_versions.pop(path, None)
            status = json.loads(_status(410, "Expired", f"too old resource version: {seen} ({self._compacted})")[1])
            _send_chunk(writer, _event("ERROR", status))
            return await _end(writer)
        bookmark_due_s = time.monotonic() + self.bookmark_s
        while (now_s := time.monotonic()) < ends_s:
            changed = self._changed
            for event in [one for one in self._history if one.version > seen and one.plural == plural]:
                seen = event.version
                if _is_chosen(event.object, namespace, query):
                    self._last_versions[path] = event.version
                    _send_chunk(writer, _event(event.type, _typed(plural, event.object)))
            if now_s >= bookmark_due_s:
                bookmark_due_s = now_s + self.bookmark_s
                seen = self._last_versions[path] = max(seen, self.version)
                bookmark = {"metadata": {"resourceVersion": str(seen)}}
                _send_chunk(writer, _event("BOOKMARK", _typed(plural, bookmark)))
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(bookmark_due_s, ends_s) - now_s):
                    await changed.wait()
        return await _end(writer)


def _is(event: Event, place: tuple[str, str]) -> bool:
    metadata = event.object["metadata"]
    return (metadata["namespace"], metadata["name"]) == place


def _place(path: str) -> tuple[str, str]:
    """Collection and namespace of a path; empty for an unknown one."""
    for plural, group in _GROUPS.items():
        if path == f"/{group}/{plural}":
            return plural, ""
        before, _, rest = path.partition(f"/{group}/namespaces/")
        if not before and rest.endswith(f"/{plural}") and rest.count("/") == 1:
            return plural, rest.partition("/")[0]
    return "", ""


def _is_chosen(document: Json, namespace: str, query: Mapping[str, str]) -> bool:
    metadata = document["metadata"]
    wanted = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
    labels = metadata.get("labels", {})
    return namespace in ("", metadata["namespace"]) and all(labels.get(key) == value for key, value in wanted.items())


def _typed(plural: str, document: Json) -> Json:
    return {"kind": _KINDS[plural], "apiVersion": _GROUPS[plural].partition("/")[2], **document}


def _event(kind: str, document: Json) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def _status(code: int, reason: str, message: str, **details: Any) -> tuple[int, bytes, dict[str, str]]:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        **({"details": details} if details else {}),
    }
    return code, json.dumps(body).encode(), {}


def refusal(code: int, reason: str = "", message: str = "", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """An answer for ``Faults.answers``."""
    status, body, _ = _status(code, reason, message)
    return status, body, {name.replace("_", "-"): value for name, value in headers.items()}


def _send(writer: asyncio.StreamWriter, code: int, body: bytes, headers: Mapping[str, str]) -> None:
    lines = [f"HTTP/1.1 {code} X", f"content-length: {len(body)}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)


def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.write(b"0\r\n\r\n")
    with contextlib.suppress(OSError):
        await writer.drain()
    writer.close()


@contextlib.contextmanager
def no_complaints(server: FakeKubernetes) -> Iterator[None]:
    """Fail if the client makes a mistake within the body."""
    yield
    assert not server.complaints, server.complaints
