"""DNS as a source: the names of services are queried again when the TTLs of their records end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf
from time import monotonic

import dns.exception
import dns.name

from xds.services.core.source import Sink, SourceError
from xds.services.sources.dns_cache import DnsCache, NoAnswer, Outcome, QueryIntervals, Question, ServiceName
from xds.services.sources.dns_client import DnsClient, plain_name

REPORT_EVERY_S = 0.5
_LONGEST_WAIT_S = 60.0


class DnsSource:
    """A `Source` that queries DNS names of services. At most ``queries_at_once`` queries run at a time."""

    kind = "dns"

    def __init__(
        self,
        name: str,
        services: Mapping[str, ServiceName],
        client: DnsClient,
        intervals: QueryIntervals | None = None,
        queries_at_once: int = 20,
    ) -> None:
        self.name = name
        self._services = dict(services)
        self._client = client
        self._intervals = intervals or QueryIntervals()
        self._queries_at_once = queries_at_once

    async def run(self, sink: Sink) -> None:
        """As in `Source`."""
        cache = DnsCache(self._services, self._intervals, monotonic())
        queries: dict[asyncio.Task[Outcome], Question] = {}
        reported_s = -inf  # when findings were last reported to the sink, monotonic seconds
        is_reported = True
        try:
            while True:
                for question in cache.take_due(monotonic(), self._queries_at_once - len(queries)):
                    queries[asyncio.create_task(self._client.query(question))] = question
                wake_s = cache.next_due if len(queries) < self._queries_at_once else inf
                for task in await _done(queries, wake_s if is_reported else min(wake_s, reported_s + REPORT_EVERY_S)):
                    cache.answered(queries.pop(task), _outcome(task), monotonic())
                    is_reported = False
                _put_changed(cache, sink)
                if not is_reported and monotonic() - reported_s >= REPORT_EVERY_S:
                    _report(cache, sink)
                    reported_s, is_reported = monotonic(), True
        finally:
            for task in queries:
                task.cancel()


async def _done(queries: Mapping[asyncio.Task[Outcome], Question], until_s: float) -> set[asyncio.Task[Outcome]]:
    """Wait for queries to end. Returns them as soon as one has; empty at ``until_s`` (monotonic seconds)."""
    wait_s = min(max(until_s - monotonic(), 0), _LONGEST_WAIT_S)
    if not queries:
        await asyncio.sleep(wait_s)
        return set()
    done, _ = await asyncio.wait(queries, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    return done


def service_name(text: str, port: int | None, families: tuple[str, ...]) -> ServiceName:
    """The name to query for a service. Raises ``ValueError`` for a text that is not a DNS name."""
    try:
        name = dns.name.from_text(text)
        if name == dns.name.root:
            raise ValueError(f"{text!r} is not a DNS name of a service")
        return ServiceName(plain_name(name), port, families)
    except (dns.exception.DNSException, UnicodeError) as error:
        raise ValueError(f"{text!r} is not a DNS name: {error}") from None


def _outcome(task: asyncio.Task[Outcome]) -> Outcome:
    try:
        return task.result()
    except SourceError as error:  # there is no server to query
        return NoAnswer(str(error))


def _put_changed(cache: DnsCache, sink: Sink) -> None:
    changed, cache.changed = cache.changed, set()
    for service in sorted(changed):
        instances = cache.instances(service)
        if instances is not None:
            sink.put(service, instances)


def _report(cache: DnsCache, sink: Sink) -> None:
    """Report findings to the sink, and whether DNS answers."""
    findings = list(cache.findings())
    sink.rejected(findings)
    if not cache.is_mute:
        if cache.is_asked:
            sink.alive()
    elif findings:
        sink.failed(str(findings[0]))
