"""A DNS server on the loopback, over UDP and TCP, authoritative for one zone, which a test may change at any time."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

SOA = "ns.{zone}. root.{zone}. 1 3600 600 86400 {negative}"


class DnsServer:
    """Answers for ``zone`` from ``records``; the test sets the records and the faults.

    ``failing`` maps names to an rcode, or to None for no answer at all. ``is_cache``: answers are not authoritative, as
    those of a resolver. ``asked`` counts the questions by name and type; ``over_tcp`` those that came over TCP.
    """

    def __init__(self, zone: str = "example.org", negative_ttl_s: int = 1) -> None:
        self.zone = dns.name.from_text(zone)
        self.soa = zone
        self.negative_ttl_s = negative_ttl_s
        self.records: dict[tuple[str, str], dns.rrset.RRset] = {}
        self.failing: dict[str, dns.rcode.Rcode | None] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        self.over_tcp: Counter[str] = Counter()
        self.is_cache = False
        self.knows_edns = True
        self.spoofs = False  # a wrong answer from a wrong port is sent before the right one
        self.is_silent = False
        self.port = 0
        self._udp: asyncio.DatagramTransport | None = None
        self._tcp: asyncio.Server | None = None

    # What is in the zone

    def put(self, name: str, type: str, *values: str, ttl_s: int = 1) -> None:
        """Set the records of a name; ``name`` without the last dot."""
        rrset = dns.rrset.from_text(f"{name}.", ttl_s, "IN", type, *values)
        self.records[(name, type)] = rrset

    def remove(self, name: str, type: str) -> None:
        """Remove the records of a name."""
        del self.records[(name, type)]

    def fail(self, name: str, how: str | None) -> None:
        """Answer questions for a name with an rcode (``SERVFAIL``), or not at all (None)."""
        self.failing[name] = None if how is None else dns.rcode.from_text(how)

    def heal(self, name: str) -> None:
        """Answer questions for a name again."""
        self.failing.pop(name, None)

    # Serving

    async def start(self) -> DnsServer:
        """Listen on a free port of 127.0.0.1."""
        loop = asyncio.get_running_loop()
        self._tcp = await asyncio.start_server(self._serve_tcp, "127.0.0.1", self.port)
        self.port = self._tcp.sockets[0].getsockname()[1]
        self._udp, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), ("127.0.0.1", self.port))
        return self

    async def stop(self) -> None:
        """Close the port; ``start`` opens the same one again."""
        assert self._tcp is not None and self._udp is not None
        self._tcp.close()
        self._udp.close()
        await self._tcp.wait_closed()

    def answer(self, wire: bytes, *, over_tcp: bool) -> bytes | None:
        """The answer to a query; None for no answer. Over UDP it is truncated to what the client takes."""
        query = dns.message.from_wire(wire)
        name = query.question[0].name.to_text(omit_final_dot=True).lower()
        type = dns.rdatatype.to_text(query.question[0].rdtype)
        self.asked[(name, type)] += 1
        self.over_tcp[name] += over_tcp
        failure = self.failing.get(name, dns.rcode.NOERROR)
        if self.is_silent or failure is None:
            return None
        made = dns.message.make_response(query)
        if not self.knows_edns and query.edns >= 0:
            made.set_rcode(dns.rcode.FORMERR)
            made.use_edns(False)
            return made.to_wire()
        if name in self.failing:
            made.set_rcode(failure)
        else:
            self._fill(made, name, type)
        if over_tcp:
            return made.to_wire(max_size=65535)
        limit = query.payload if query.edns >= 0 else 512
        try:
            return made.to_wire(max_size=limit)
        except dns.exception.TooBig:
            short = dns.message.make_response(query)
            short.flags |= dns.flags.TC
            return short.to_wire()

    def _fill(self, made: dns.message.Message, name: str, type: str) -> None:
        made.flags |= dns.flags.RA if self.is_cache else dns.flags.AA
        at = name
        while (at, "CNAME") in self.records and type != "CNAME":
            alias = self.records[(at, "CNAME")]
            made.answer.append(alias)
            at = alias[0].target.to_text(omit_final_dot=True).lower()
        found = self.records.get((at, type))
        if found is not None:
            made.answer.append(found)
            return
        if not any(each == at for each, _ in self.records):
            made.set_rcode(dns.rcode.NXDOMAIN)
        if self.soa:
            text = SOA.format(zone=self.soa, negative=self.negative_ttl_s) if self.soa != "." else "a. b. 1 2 3 4 5"
            owner = f"{self.soa}." if self.soa != "." else "."
            made.authority.append(dns.rrset.from_text(owner, self.negative_ttl_s, "IN", "SOA", text))

    async def _serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            (size,) = struct.unpack("!H", await reader.readexactly(2))
            made = self.answer(await reader.readexactly(size), over_tcp=True)
            if made is not None:
                writer.write(struct.pack("!H", len(made)) + made)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self._server.spoofs:
            query = dns.message.from_wire(data)
            forged = dns.message.make_response(query)
            forged.id = (query.id + 1) % 65536
            forged.answer.append(dns.rrset.from_text(query.question[0].name, 300, "IN", "A", "192.0.2.66"))
            self._transport.sendto(forged.to_wire(), addr)
            self._transport.sendto(b"no message at all", addr)
        made = self._server.answer(data, over_tcp=False)
        if made is not None:
            self._transport.sendto(made, addr)
