"""A Consul catalog as a source: the healthy and unhealthy instances of the services that something here uses.

Each service has a blocking query of its own, up to a bound on connections: Consul refuses more than 200 of one address
(`limits.http_max_conns_per_client`). With more services, all of them are asked in rotation, as fast as a rate bound
allows (docs/services.md#consul).
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx

from xds.catalog.instance import Instance
from xds.catalog.source import Sink, SourceError
from xds.model.errors import WARNING, Violation
from xds.sources.consul_health import Reading, read_instances

_INDEX = "x-consul-index"
_KNOWN_LEADER = "x-consul-knownleader"
_FILTERED = "x-consul-results-filtered-by-acls"

_CONNECT_S = 5.0
_HEARTBEAT_S = 10.0
_RETRY_FIRST_S = 0.5
_RETRY_LAST_S = 10.0
_THREAD_BYTES = 64 << 10  # longer answers are parsed in a thread
_ERROR_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ConsulOptions:
    """How a Consul is asked.

    * ``address``: the URL of an agent or of a server; ``datacenter``: empty for the agent's own;
    * ``token``, or a file at ``token_path``, which is read again when it changes;
    * ``connections``: at most this many; with more services they are asked in rotation;
    * ``queries_per_s``: at most this many, over all services; ``every_s``: the least time between two of one service;
    * ``wait_s``: how long Consul holds a query without news. So long, a Consul that lost its state between two queries
      and counts from a lower index again may be misunderstood. ``late_s`` beyond it a query counts as lost;
    * ``stale``: any Consul server may answer, not only the leader.
    """

    address: str = "http://127.0.0.1:8500"
    datacenter: str = ""
    token: str = ""
    token_path: Path | None = None
    tls: ssl.SSLContext | None = None
    connections: int = 100
    queries_per_s: float = 100.0
    every_s: float = 0.25
    wait_s: float = 15.0
    late_s: float = 10.0
    stale: bool = False
    answer_bytes: int = 64 << 20
    reading: Reading = field(default_factory=Reading)


@dataclass(slots=True)
class _Service:
    """What is known of one service: the index of the last answer, 0 for none, and the instances that were given on."""

    name: str
    index: int = 0
    given: list[Instance] | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    index: int
    body: bytes
    is_filtered: bool


class ConsulSource:
    """Observes one datacenter. ``name`` is the operator's."""

    kind = "consul"

    def __init__(self, name: str, options: ConsulOptions) -> None:
        self.name = name
        self._options = options
        self._token = _Token(options)
        self._rate = _Rate(options.queries_per_s)
        self._watched_n = 0
        self._failing: dict[str, str] = {}  # by service; "" is the agent itself
        self._filtered: set[str] = set()  # services of which the token may not read all instances
        self._reported: list[Violation] = []

    async def run(self, sink: Sink) -> None:
        """Observe until cancelled."""
        self._failing.clear()
        self._filtered.clear()
        self._reported = []
        options = self._options
        # A connection beside those of the services, for the heartbeat.
        limits = httpx.Limits(max_connections=options.connections, max_keepalive_connections=options.connections)
        verify = options.tls if options.tls is not None else True
        async with httpx.AsyncClient(base_url=options.address, limits=limits, verify=verify, trust_env=False) as client:
            beating = asyncio.create_task(self._beat(client, sink))
            watching: dict[str, asyncio.Task[None]] = {}
            try:
                await self._follow_wanted(client, sink, watching)
            finally:
                for task in (beating, *watching.values()):
                    task.cancel()
                await asyncio.gather(beating, *watching.values(), return_exceptions=True)

    async def _follow_wanted(
        self, client: httpx.AsyncClient, sink: Sink, watching: dict[str, asyncio.Task[None]]
    ) -> None:
        """Watch the wanted services one by one, or in rotation when they are more than the connections."""
        wanted: frozenset[str] = sink.wanted()
        known: dict[str, _Service] = {}
        while True:
            for name in known.keys() - wanted:
                del known[name]
                self._failing.pop(name, None)
                self._filtered.discard(name)
                sink.remove(name)
            for name in wanted - known.keys():
                known[name] = _Service(name)
            self._watched_n = len(known)
            self._assign(client, sink, watching, known)
            change = asyncio.create_task(sink.wait_for_wanted(wanted))
            try:
                # A watch ends only by a fault of this program: it is raised, and the source is started again.
                done, _ = await asyncio.wait((change, *watching.values()), return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
            for task in done - {change}:
                task.result()
            wanted = change.result() if change in done else sink.wanted()

    def _assign(
        self,
        client: httpx.AsyncClient,
        sink: Sink,
        watching: dict[str, asyncio.Task[None]],
        known: Mapping[str, _Service],
    ) -> None:
        """Start and end tasks so that each known service is watched by one."""
        workers = self._options.connections - 1  # one is the heartbeat's
        rotates = len(known) > workers
        keep = {f"rotation {number}" for number in range(workers)} if rotates else set(known)
        for name in watching.keys() - keep:
            watching.pop(name).cancel()
        if rotates:
            for task in watching.values():
                task.cancel()
            watching.clear()
            turns = deque(known.values())
            for name in keep:
                watching[name] = asyncio.create_task(self._rotate(client, sink, turns))
            return
        for name in keep - watching.keys():
            watching[name] = asyncio.create_task(self._watch(client, sink, known[name]))

    async def _watch(self, client: httpx.AsyncClient, sink: Sink, service: _Service) -> None:
        """Ask for one service again and again, by blocking queries."""
        delay_s = _RETRY_FIRST_S
        while True:
            if await self._ask_once(client, sink, service, self._options.wait_s):
                delay_s = _RETRY_FIRST_S
                await asyncio.sleep(self._options.every_s)  # a service that changes all the time is read this often
            else:
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries
                delay_s = min(delay_s * 2, _RETRY_LAST_S)

    async def _rotate(self, client: httpx.AsyncClient, sink: Sink, turns: deque[_Service]) -> None:
        """Ask for the service that has waited longest, without blocking, again and again."""
        while True:
            service = turns.popleft()
            try:
                is_answered = await self._ask_once(client, sink, service, 0.0)
            finally:
                turns.append(service)
            await asyncio.sleep(self._options.every_s if is_answered else _RETRY_FIRST_S)

    async def _ask_once(self, client: httpx.AsyncClient, sink: Sink, service: _Service, wait_s: float) -> bool:
        """Ask for a service and give on what is new. False when there was no usable answer."""
        try:
            await self._rate.turn()
            answer = await self._ask(client, service, wait_s)
            instances = await self._read(answer) if answer.index != service.index else None
            if answer.is_filtered and instances is not None and not instances:
                raise SourceError(f"the token may not read the instances of {service.name!r}")
        except (SourceError, httpx.HTTPError, httpx.InvalidURL) as error:
            # "index going back" and an agent that lost its state: after a fault the next query does not block.
            service.index = 0
            self._fail(sink, service.name, _told(error))
            return False
        # Consul's own rule for blocking queries: an index that went back is forgotten.
        service.index = answer.index if answer.index >= service.index else 0
        if instances is not None and instances != service.given:
            service.given = instances
            (self._filtered.add if answer.is_filtered else self._filtered.discard)(service.name)
            sink.put(service.name, instances)
        self._recover(sink, service.name)
        return True

    async def _ask(self, client: httpx.AsyncClient, service: _Service, wait_s: float) -> _Answer:
        params: dict[str, str] = {}
        if self._options.datacenter:
            params["dc"] = self._options.datacenter
        if self._options.stale:
            params["stale"] = ""
        elif not service.index:
            # A server that was just elected answers before it has applied its whole log: instances that went long ago
            # are back for a moment. "consistent" waits for the log.
            params["consistent"] = ""
        if service.index and wait_s:
            params |= {"index": str(service.index), "wait": f"{wait_s:g}s"}
        path = f"/v1/health/service/{quote(service.name, safe='')}"
        # Consul adds up to a sixteenth of the wait, so that queries do not end together.
        timeout = httpx.Timeout(_CONNECT_S, read=wait_s * 17 / 16 + self._options.late_s)
        status, headers, body = await self._get(client, path, params, timeout)
        if status != 200:
            raise SourceError(f"GET {path}: {status} {body[:_ERROR_CHARACTERS].decode(errors='replace').strip()}")
        index = headers.get(_INDEX, "")
        if not index.isascii() or not index.isdigit():
            raise SourceError(f"GET {path}: no X-Consul-Index in the answer; is this a Consul?")
        if self._options.stale and headers.get(_KNOWN_LEADER, "true") == "false":
            raise SourceError(f"GET {path}: the server that answers has lost its leader")
        # "The index should be reset to 0 if it goes backwards" and is at least 1, else a query would not block.
        return _Answer(max(int(index), 1), body, headers.get(_FILTERED, "") == "true")

    async def _get(
        self, client: httpx.AsyncClient, path: str, params: Mapping[str, str], timeout: httpx.Timeout
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body. The body is bounded: a source that floods costs no more."""
        headers = {"X-Consul-Token": token} if (token := self._token.read()) else {}
        async with client.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._options.answer_bytes:
                    raise SourceError(f"GET {path}: the answer is longer than {self._options.answer_bytes} bytes")
            return response.status_code, response.headers, bytes(body)

    async def _read(self, answer: _Answer) -> list[Instance]:
        reading = self._options.reading
        if len(answer.body) > _THREAD_BYTES:
            return await asyncio.to_thread(read_instances, answer.body, reading)
        return read_instances(answer.body, reading)

    async def _beat(self, client: httpx.AsyncClient, sink: Sink) -> None:
        """Ask the agent whether it is there: blocking queries tell nothing while they wait."""
        while True:
            try:
                status, _, body = await self._get(client, "/v1/status/leader", {}, httpx.Timeout(_CONNECT_S))
                if status != 200 or body.strip() in (b"", b'""'):
                    said = body[:_ERROR_CHARACTERS].decode(errors="replace").strip()
                    raise SourceError(f"Consul has no leader: {status} {said}")
            except (SourceError, httpx.HTTPError, httpx.InvalidURL) as error:
                self._fail(sink, "", _told(error))
            else:
                self._recover(sink, "")
            await asyncio.sleep(_HEARTBEAT_S)

    def _fail(self, sink: Sink, service: str, message: str) -> None:
        self._failing[service] = message
        if "" in self._failing or len(self._failing) >= self._watched_n:
            sink.failed(self._failing.get("", message))
        self._report(sink)

    def _recover(self, sink: Sink, service: str) -> None:
        self._failing.pop(service, None)
        if "" not in self._failing:
            sink.alive()
        self._report(sink)

    def _report(self, sink: Sink) -> None:
        """Report the services that cannot be read, or not whole, while others can."""
        failing = [Violation("unreadable", self._failing[name], pointer=f"/{name}") for name in self._failing if name]
        findings = failing + [_filtered(name) for name in sorted(self._filtered)]
        if findings != self._reported:
            self._reported = findings
            sink.rejected(findings)


class _Token:
    """The token, read from its file again when that changes. Raises ``SourceError`` when the file cannot be read."""

    def __init__(self, options: ConsulOptions) -> None:
        self._path = options.token_path
        self._token = options.token
        self._read_at: tuple[int, int] | None = None

    def read(self) -> str:
        if self._path is not None:
            try:
                state = self._path.stat()
                if self._read_at != (state.st_mtime_ns, state.st_ino):
                    self._token = self._path.read_text().strip()
                    self._read_at = (state.st_mtime_ns, state.st_ino)
                if not (self._token.isascii() and self._token.isprintable()):
                    raise SourceError(f"the token file {self._path}: no token")
            except (OSError, UnicodeDecodeError) as error:
                raise SourceError(f"the token file {self._path}: {error}") from error
        return self._token


class _Rate:
    """At most this many turns per second; who comes early waits."""

    def __init__(self, per_s: float) -> None:
        self._step_s = 1 / per_s
        self._next = 0.0

    async def turn(self) -> None:
        now = asyncio.get_running_loop().time()
        at, self._next = max(now, self._next), max(now, self._next) + self._step_s
        if at > now:
            await asyncio.sleep(at - now)


def _filtered(service: str) -> Violation:
    detail = f"the token may not read all instances of {service!r}; those that it may not read are missing"
    return Violation("filtered", detail, pointer=f"/{service}", severity=WARNING)


def _told(error: Exception) -> str:
    """What an error says; exceptions of connections often say nothing."""
    return str(error) or type(error).__name__
