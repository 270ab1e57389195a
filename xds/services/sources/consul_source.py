"""A Consul catalog as a source: the healthy and unhealthy instances of the services that something here uses.

Each service has a blocking query of its own, up to a limit of connections: Consul refuses more than 200 from one
address (`limits.http_max_conns_per_client`). With more services, all of them are queried in rotation, within a rate
limit (docs/services.md#consul).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx

from xds.codec.regular_file import read_regular
from xds.model.errors import WARNING, Violation
from xds.services.core.instance import Instance
from xds.services.core.source import Sink, SourceError
from xds.services.growing_delay import GrowingDelay
from xds.services.source_settings import ConsulSettings
from xds.services.sources.consul_health import InstanceOptions, read_instances

_INDEX = "x-consul-index"
_KNOWN_LEADER = "x-consul-knownleader"
_FILTERED = "x-consul-results-filtered-by-acls"

_CONNECT_S = 5.0
_HEARTBEAT_S = 10.0
_RETRY_FIRST_S = 0.5
_RETRY_LAST_S = 10.0
_THREAD_BYTES = 64 << 10  # longer answers are parsed in a thread
_ERROR_CHARACTERS = 200
_LATE_S = 10.0
_ANSWER_BYTES = 64 << 20
_TOKEN_BYTES = 64 << 10


@dataclass(slots=True)
class _Service:
    """One watched service: the index of the last answer (0: none), and the instances that the sink has."""

    name: str
    index: int = 0
    sent: list[Instance] | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    index: int
    body: bytes
    is_filtered: bool


class ConsulSource:
    """A `Source` that observes one datacenter.

    ``own_datacenter`` is that of this server. If Consul loses its state between two queries and counts from a lower
    index again, changes may be missed for the ``wait_s`` of the settings. A query that takes ``late_s`` longer than
    that counts as lost. An answer has at most ``answer_bytes``. Raises ``OSError`` for TLS files that cannot be read.
    """

    kind = "consul"

    def __init__(
        self,
        name: str,
        settings: ConsulSettings,
        own_datacenter: str = "dc1",
        late_s: float = _LATE_S,
        answer_bytes: int = _ANSWER_BYTES,
    ) -> None:
        self.name = name
        self._settings = settings
        self._instances = InstanceOptions(own_datacenter, settings.region_meta or "", settings.zone_meta or "")
        self._late_s = late_s
        self._answer_bytes = answer_bytes
        self._tls = settings.tls_context()
        self._rate = _RateLimit(settings.queries_per_s)
        self._watched_n = 0
        self._failing: dict[str, str] = {}  # by service; "" is the agent itself
        self._filtered: set[str] = set()  # services with instances that the token may not read
        self._reported: list[Violation] = []

    async def run(self, sink: Sink) -> None:
        """Observe until cancelled."""
        self._failing.clear()
        self._filtered.clear()
        self._reported = []
        # One of the connections is for the heartbeat.
        connections, address = self._settings.connections, self._settings.address
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        verify = self._tls or False  # plain HTTP: to load the authorities would hold the loop for 50 ms
        async with httpx.AsyncClient(base_url=address, limits=limits, verify=verify, trust_env=False) as client:
            heartbeat = asyncio.create_task(self._check_agent(client, sink))
            tasks: dict[str, asyncio.Task[None]] = {}
            try:
                await self._follow_wanted(client, sink, tasks)
            finally:
                for task in (heartbeat, *tasks.values()):
                    task.cancel()
                await asyncio.gather(heartbeat, *tasks.values(), return_exceptions=True)

    async def _follow_wanted(self, client: httpx.AsyncClient, sink: Sink, tasks: dict[str, asyncio.Task[None]]) -> None:
        """Watch the wanted services one by one, or in rotation when they are more than the connections."""
        wanted: frozenset[str] = sink.wanted()
        services: dict[str, _Service] = {}
        while True:
            for name in services.keys() - wanted:
                del services[name]
                self._failing.pop(name, None)
                self._filtered.discard(name)
                sink.remove(name)
            for name in wanted - services.keys():
                services[name] = _Service(name)
            self._watched_n = len(services)
            self._assign(client, sink, tasks, services)
            change = asyncio.create_task(sink.wait_for_wanted(wanted))
            try:
                # A watch ends only by a bug: the error is raised here, and the source is started again.
                done, _ = await asyncio.wait((change, *tasks.values()), return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
            for task in done - {change}:
                task.result()
            wanted = change.result() if change in done else sink.wanted()

    def _assign(
        self,
        client: httpx.AsyncClient,
        sink: Sink,
        tasks: dict[str, asyncio.Task[None]],
        services: Mapping[str, _Service],
    ) -> None:
        """Start and end tasks so that each service has a watch, or all are in the rotation."""
        workers = self._settings.connections - 1  # one is the heartbeat's
        rotates = len(services) > workers
        keep = {f"rotation {number}" for number in range(workers)} if rotates else set(services)
        for name in tasks.keys() - keep:
            tasks.pop(name).cancel()
        if rotates:
            for task in tasks.values():
                task.cancel()
            tasks.clear()
            queue = deque(services.values())
            for name in keep:
                tasks[name] = asyncio.create_task(self._rotate(client, sink, queue))
            return
        for name in keep - tasks.keys():
            tasks[name] = asyncio.create_task(self._watch(client, sink, services[name]))

    async def _watch(self, client: httpx.AsyncClient, sink: Sink, service: _Service) -> None:
        """Query one service by blocking queries, until cancelled."""
        delay = GrowingDelay(_RETRY_FIRST_S, _RETRY_LAST_S)
        while True:
            if await self._query_once(client, sink, service, self._settings.wait_s):
                delay.reset()
                await asyncio.sleep(self._settings.every_s)  # bounds the reads of a service that changes all the time
            else:
                await asyncio.sleep(delay.next_s())

    async def _rotate(self, client: httpx.AsyncClient, sink: Sink, queue: deque[_Service]) -> None:
        """Query the service that has waited longest, without blocking, until cancelled."""
        while True:
            service = queue.popleft()
            try:
                is_answered = await self._query_once(client, sink, service, 0.0)
            finally:
                queue.append(service)
            await asyncio.sleep(self._settings.every_s if is_answered else _RETRY_FIRST_S)

    async def _query_once(self, client: httpx.AsyncClient, sink: Sink, service: _Service, wait_s: float) -> bool:
        """Query a service and pass new instances to the sink. False when there was no usable answer."""
        try:
            await self._rate.wait()
            answer = await self._query(client, service, wait_s)
            instances = await self._read(answer) if answer.index != service.index else None
            if answer.is_filtered and instances is not None and not instances:
                raise SourceError(f"the token may not read the instances of {service.name!r}")
        except (SourceError, httpx.HTTPError, httpx.InvalidURL) as error:
            # The agent may have lost its state, and its index may go back: after a fault the next query does not block.
            service.index = 0
            self._fail(sink, service.name, _error_text(error))
            return False
        # Consul's own rule for blocking queries: an index that went back is forgotten.
        service.index = answer.index if answer.index >= service.index else 0
        if instances is not None and instances != service.sent:
            service.sent = instances
            (self._filtered.add if answer.is_filtered else self._filtered.discard)(service.name)
            sink.put(service.name, instances)
        self._recover(sink, service.name)
        return True

    async def _query(self, client: httpx.AsyncClient, service: _Service, wait_s: float) -> _Answer:
        params: dict[str, str] = {}
        if self._settings.datacenter:
            params["dc"] = self._settings.datacenter
        if self._settings.stale:
            params["stale"] = ""
        elif not service.index:
            # A new leader answers before it has applied its whole log, so its answer may have instances that were
            # removed long ago. "consistent" waits for the log.
            params["consistent"] = ""
        if service.index and wait_s:
            params |= {"index": str(service.index), "wait": f"{wait_s:g}s"}
        path = f"/v1/health/service/{quote(service.name, safe='')}"
        # Consul adds up to a sixteenth of the wait, so that queries do not end together.
        timeout = httpx.Timeout(_CONNECT_S, read=wait_s * 17 / 16 + self._late_s)
        status, headers, body = await self._get(client, path, params, timeout)
        if status != 200:
            raise SourceError(f"GET {path}: {status} {body[:_ERROR_CHARACTERS].decode(errors='replace').strip()}")
        index = headers.get(_INDEX, "")
        if not index.isascii() or not index.isdigit():
            raise SourceError(f"GET {path}: no X-Consul-Index in the answer; is this a Consul?")
        if self._settings.stale and headers.get(_KNOWN_LEADER, "true") == "false":
            raise SourceError(f"GET {path}: the server that answers has lost its leader")
        # "The index should be reset to 0 if it goes backwards" and is at least 1, else a query would not block.
        return _Answer(max(int(index), 1), body, headers.get(_FILTERED, "") == "true")

    async def _get(
        self, client: httpx.AsyncClient, path: str, params: Mapping[str, str], timeout: httpx.Timeout
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body. The body is bounded by ``answer_bytes``."""
        headers = {"X-Consul-Token": token} if (token := _read_token(self._settings)) else {}
        async with client.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._answer_bytes:
                    raise SourceError(f"GET {path}: the answer is longer than {self._answer_bytes} bytes")
            return response.status_code, response.headers, bytes(body)

    async def _read(self, answer: _Answer) -> list[Instance]:
        if len(answer.body) > _THREAD_BYTES:
            return await asyncio.to_thread(read_instances, answer.body, self._instances)
        return read_instances(answer.body, self._instances)

    async def _check_agent(self, client: httpx.AsyncClient, sink: Sink) -> None:
        """Check every ``_HEARTBEAT_S`` that the agent answers: a blocking query does not show that while it waits."""
        while True:
            try:
                status, _, body = await self._get(client, "/v1/status/leader", {}, httpx.Timeout(_CONNECT_S))
                if status != 200 or body.strip() in (b"", b'""'):
                    text = body[:_ERROR_CHARACTERS].decode(errors="replace").strip()
                    raise SourceError(f"Consul has no leader: {status} {text}")
            except (SourceError, httpx.HTTPError, httpx.InvalidURL) as error:
                self._fail(sink, "", _error_text(error))
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
        """Report the services of which some or all instances cannot be read."""
        failing = [Violation("unreadable", self._failing[name], pointer=f"/{name}") for name in self._failing if name]
        findings = failing + [_filtered_finding(name) for name in sorted(self._filtered)]
        if findings != self._reported:
            self._reported = findings
            sink.rejected(findings)


def _read_token(settings: ConsulSettings) -> str:
    """The present token; empty if there is none. Raises ``SourceError`` when its file cannot be read."""
    path = settings.token_path
    if path is None:
        return settings.token.get_secret_value() if settings.token is not None else ""
    try:
        token = read_regular(path, _TOKEN_BYTES).data.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"the token file {path}: {getattr(error, 'strerror', None) or 'no token'}") from None
    if not token.isprintable():
        raise SourceError(f"the token file {path}: no token")
    return token


class _RateLimit:
    """A limit of queries per second: `wait` delays queries beyond it."""

    def __init__(self, per_s: float) -> None:
        self._step_s = 1 / per_s
        self._next = 0.0

    async def wait(self) -> None:
        now = asyncio.get_running_loop().time()
        at, self._next = max(now, self._next), max(now, self._next) + self._step_s
        if at > now:
            await asyncio.sleep(at - now)


def _filtered_finding(service: str) -> Violation:
    detail = f"the token may not read all instances of {service!r}; those that it may not read are missing"
    return Violation("filtered", detail, pointer=f"/{service}", severity=WARNING)


def _error_text(error: Exception) -> str:
    """The message of an error, or its type: exceptions of connections often have no message."""
    return str(error) or type(error).__name__
