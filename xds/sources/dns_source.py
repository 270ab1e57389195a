"""DNS as a source: the names of services are asked again when the TTLs of their records end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf
from time import monotonic

import dns.exception
import dns.name

from xds.catalog.source import Sink, SourceError
from xds.sources.dns_cache import DnsMemory, NoAnswer, Outcome, Pace, Question, ServiceName
from xds.sources.dns_client import DnsClient, plain_name

TOLD_EVERY_S = 0.5
_LONGEST_WAIT_S = 60.0


class DnsSource:
    """``services`` maps each service to what is asked for it: at most ``queries_at_once`` questions at a time."""

    kind = "dns"

    def __init__(
        self,
        name: str,
        services: Mapping[str, ServiceName],
        client: DnsClient,
        pace: Pace | None = None,
        queries_at_once: int = 20,
    ) -> None:
        self._name = name
        self._services = dict(services)
        self._client = client
        self._pace = pace or Pace()
        self._queries_at_once = queries_at_once

    @property
    def name(self) -> str:
        """As in `Source`."""
        return self._name

    async def run(self, sink: Sink) -> None:
        """As in `Source`."""
        memory = DnsMemory(self._services, self._pace, monotonic())
        asking: dict[asyncio.Task[Outcome], Question] = {}
        told_s = -inf  # when the sink was told of what is wrong, monotonic
        is_told = True
        try:
            while True:
                for question in memory.take_due(monotonic(), self._queries_at_once - len(asking)):
                    asking[asyncio.create_task(self._client.ask(question))] = question
                wake_s = memory.next_due if len(asking) < self._queries_at_once else inf
                for task in await _done(asking, wake_s if is_told else min(wake_s, told_s + TOLD_EVERY_S)):
                    memory.answered(asking.pop(task), _outcome(task), monotonic())
                    is_told = False
                _put_changed(memory, sink)
                if not is_told and monotonic() - told_s >= TOLD_EVERY_S:
                    _tell(memory, sink)
                    told_s, is_told = monotonic(), True
        finally:
            for task in asking:
                task.cancel()


async def _done(asking: Mapping[asyncio.Task[Outcome], Question], until_s: float) -> set[asyncio.Task[Outcome]]:
    """The questions that are answered, as soon as there is one; none at ``until_s`` (monotonic)."""
    wait_s = min(max(until_s - monotonic(), 0), _LONGEST_WAIT_S)
    if not asking:
        await asyncio.sleep(wait_s)
        return set()
    done, _ = await asyncio.wait(asking, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    return done


def service_name(text: str, port: int | None, families: tuple[str, ...]) -> ServiceName:
    """What is asked for a service. Raises ``ValueError`` for what is no name."""
    try:
        name = dns.name.from_text(text)
        if name == dns.name.root:
            raise ValueError(f"{text!r} is no DNS name of a service")
        return ServiceName(plain_name(name), port, families)
    except (dns.exception.DNSException, UnicodeError) as error:
        raise ValueError(f"{text!r} is no DNS name: {error}") from None


def _outcome(task: asyncio.Task[Outcome]) -> Outcome:
    try:
        return task.result()
    except SourceError as error:  # there is no server to ask
        return NoAnswer(str(error))


def _put_changed(memory: DnsMemory, sink: Sink) -> None:
    changed, memory.changed = memory.changed, set()
    for service in sorted(changed):
        instances = memory.instances(service)
        if instances is not None:
            sink.put(service, instances)


def _tell(memory: DnsMemory, sink: Sink) -> None:
    """Tell the sink what is wrong, and whether there are answers."""
    findings = list(memory.findings())
    sink.rejected(findings)
    if not memory.is_mute:
        sink.alive()
    elif findings:
        sink.failed(str(findings[0]))
