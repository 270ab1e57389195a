"""Queries DNS servers. The outcome of a question is records, no records, or no usable answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.resolver

from xds.services.core.source import SourceError
from xds.services.sources.dns_cache import NoAnswer, NoRecords, Outcome, Question, Records, SrvRecord, Value

PAYLOAD_BYTES = 1232  # answers over UDP up to this size are never fragmented; longer ones come over TCP
RESOLV_CONF = Path("/etc/resolv.conf")
SYSTEM_S = 10.0  # /etc/resolv.conf is read again after this long

Server = tuple[str, int]  # address and port


class DnsClient:
    """Queries ``servers`` in order, each for ``timeout_s`` at most; if empty, those of ``/etc/resolv.conf``."""

    def __init__(self, servers: Sequence[Server] = (), timeout_s: float = 2.0) -> None:
        self._servers = tuple(servers)
        self._timeout_s = timeout_s
        self._system_servers: tuple[Server, ...] = ()
        self._system_read_s = -inf  # when these were read, monotonic seconds

    async def query(self, question: Question) -> Outcome:
        """The outcome at the first server with a usable answer. Raises ``SourceError`` if there is no server."""
        failures = []
        for server in self._servers or await self._system():
            try:
                outcome = outcome_of(question, await self._query(question, server))
            except (dns.exception.DNSException, OSError, EOFError, TimeoutError) as error:
                outcome = NoAnswer(_error_text(error))
            if not isinstance(outcome, NoAnswer):
                return outcome
            failures.append(f"{outcome.message} ({server[0]}:{server[1]})")
        return NoAnswer("; ".join(failures))

    async def _system(self) -> tuple[Server, ...]:
        if monotonic() - self._system_read_s > SYSTEM_S:
            self._system_servers, self._system_read_s = await asyncio.to_thread(system_servers), monotonic()
        return self._system_servers

    async def _query(self, question: Question, server: Server) -> dns.message.Message:
        """Query a server over UDP, and over TCP if the answer is truncated; again without EDNS if it knows none."""
        query = dns.message.make_query(question.name, question.type, use_edns=0, payload=PAYLOAD_BYTES)
        answer = await self._exchange(query, server)
        if answer.rcode() in (dns.rcode.FORMERR, dns.rcode.NOTIMP):  # a server that knows no EDNS
            answer = await self._exchange(dns.message.make_query(question.name, question.type), server)
        return answer

    async def _exchange(self, query: dns.message.Message, server: Server) -> dns.message.Message:
        async with asyncio.timeout(2 * self._timeout_s):
            answer, _ = await dns.asyncquery.udp_with_fallback(
                query, server[0], self._timeout_s, server[1], ignore_unexpected=True, ignore_errors=True
            )
        return answer


def system_servers() -> tuple[Server, ...]:
    """The servers of ``/etc/resolv.conf``. Raises ``SourceError`` if there are none."""
    try:
        resolver = dns.resolver.Resolver(str(RESOLV_CONF))
    except (dns.exception.DNSException, OSError) as error:
        raise SourceError(f"{RESOLV_CONF}: {error}") from None
    return tuple((str(address), resolver.port) for address in resolver.nameservers)


def outcome_of(question: Question, message: dns.message.Message) -> Outcome:
    """The outcome of an answer. Raises ``DNSException`` for an answer that breaks the protocol."""
    if not isinstance(message, dns.message.QueryMessage) or message.rcode() not in (
        dns.rcode.NOERROR,
        dns.rcode.NXDOMAIN,
    ):
        return NoAnswer(dns.rcode.to_text(message.rcode()))
    chain = message.resolve_chaining()
    if chain.answer is not None:
        values = tuple(_value(each) for each in chain.answer)
        return Records(values, float(chain.minimum_ttl))
    return _no_records(message, chain.canonical_name)


def _no_records(message: dns.message.QueryMessage, name: dns.name.Name) -> Outcome:
    """The outcome of an answer without records. Only the SOA record of the zone makes it count (RFC 2308)."""
    reason = "NXDOMAIN" if message.rcode() == dns.rcode.NXDOMAIN else "no such records"
    for rrset in message.authority:
        if rrset.rdtype != dns.rdatatype.SOA or not name.is_subdomain(rrset.name):
            continue
        if rrset.name == dns.name.root:
            return NoAnswer(f"{reason}, by the root zone: this server does not know the zone of the name")
        ttl_s = 0 if message.flags & dns.flags.AA else min(rrset.ttl, rrset[0].minimum)
        return NoRecords(f"{reason}, by the zone {rrset.name.to_text(omit_final_dot=True)}", float(ttl_s))
    return NoAnswer(f"{reason}, without the SOA record of the zone")


def _value(record: Any) -> Value:
    if record.rdtype == dns.rdatatype.SRV:
        return SrvRecord(record.priority, record.weight, record.port, plain_name(record.target))
    return str(record.address)


def plain_name(name: dns.name.Name) -> str:
    """A name in lower case and without the last dot; the root is ``.``."""
    return name.to_text(omit_final_dot=True).lower()


def _error_text(error: BaseException) -> str:
    if isinstance(error, dns.exception.Timeout | TimeoutError):
        return "timed out"
    return f"{type(error).__name__}: {error}"
