"""A simulated Envoy: it warms, drains, withholds ACKs and retries as Envoy 1.40 does, and notices lost requests.

The content of resources is text (``tests.support.texts``). Sources: docs/internals/clients.md#envoy and Envoy's
``grpc_mux_impl.cc``, ``delta_subscription_state.cc`` and ``watch_map.cc``. Its behaviour:

* CDS is paused while a cluster warms. On ADS the answer is withheld, and a new stream does not request clusters. When
  the cluster is warm, SotW answers the newest response only, with an error left over from an earlier one; Delta answers
  every response in order.
* A cluster with health checks is warm when its first health check has finished.
* A changed cluster serves its previous version until the new one is warm. So does a changed listener, but its response
  is ACKed at once. Old connections use the filter chains of replaced and removed listeners for the drain time.
* A NACK of CDS or LDS names the bad resources; the others are applied. A NACK of another type applies the resources
  before the first bad one, and every cluster or listener that waits for the type goes live with what it has.
* A request is retried for some time after it was routed, and each retry looks its cluster up again.
* In SotW each version of a cluster that appears or disappears makes a request of its own; in Delta only new names do.
* With ``split`` each subscription has its own stream. The streams for the names in a response begin after its ACK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from tests.support.envoy_link import AppliedPart, Link, Version
from tests.support.sansio import Response, Server
from tests.support.texts import ADMIN, AUTHZ, INTERNAL, parse
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SECRET, resource_type
from xds.protocol.dialect import Variant
from xds.protocol.events import Send
from xds.protocol.type_status import TypeStatus

DRAIN_S = 600.0  # --drain-time-s
RETRY_S = 15.0  # the default timeout of a route
FETCH_S = 15.0  # initial_fetch_timeout
MANY_STEPS = 20_000
JUST_BEFORE = 1e-6
Watch = tuple[str, int]  # a name, and which version of a cluster asks for it
Key = tuple[str, str, int]  # of a stream: type URL, name, version of the cluster; all empty on ADS


class EnvoyLike:
    """One simulated Envoy.

    * ``lost``: the reasons for which requests were lost, each once;
    * ``refuses``: texts that it rejects, besides those that contain ``bad``;
    * ``cold``: clusters whose health checks do not finish: they stay cold until they are removed from this set;
    * ``elsewhere``: it gets its assignments from another server;
    * ``slow``: its requests wait in the ``outbox`` of their streams;
    * ``must_listen``: listeners without which requests are lost, once it is live;
    * ``exposures``: (listener, its text, route configuration, its text) where a new connection reached an admin path
      without authorisation. Internal listeners are left out: another listener leads to each.
    """

    def __init__(
        self,
        server: Server,
        variant: Variant,
        node_id: str = "node",
        *,
        split: bool = False,
        elsewhere: bool = False,
        **fields: Any,
    ) -> None:
        self.server, self.variant = server, variant
        self.split, self.elsewhere, self.slow = split, elsewhere, False
        self.lost: list[str] = []
        self.exposures: set[tuple[str, str, str, str]] = set()
        self.refuses: set[str] = set()
        self.cold: set[str] = set()
        self.must_listen: set[str] = set()
        self.drain_s, self.retry_s = DRAIN_S, RETRY_S
        self.active: dict[str, Version] = {}
        self.warming: dict[str, Version] = {}
        self.listening: dict[str, Version] = {}
        self.opening: dict[str, Version] = {}  # listeners that warm
        self.draining: list[tuple[float, Version]] = []
        self.available: dict[str, dict[str, str]] = {ROUTE: {}, SECRET: {}, EXTENSION_CONFIG: {}}
        self._links: dict[Key, Link] = {}
        self._node: tuple[str, dict[str, Any]] = (node_id, fields)
        self._is_online = True
        self._has_asked_for_listeners = False
        self._owes_clusters = False  # it must still request CDS on this stream
        self._watched: dict[str, set[Watch]] = {}
        self._serials = count(1)
        self._due: list[tuple[Send, str]] = []  # responses of CDS that are not answered yet
        self._left_over = ""  # an error that SotW will send with the next answer to CDS
        self._handled = ""  # the type of the response that is being applied
        self._used: dict[str, float] = {}  # clusters to when a request was last routed to them
        self._is_live = False

    @property
    def links(self) -> list[Link]:
        """Its streams."""
        return list(self._links.values())

    # -- what tests do ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Send the first request, handle all responses, and go live."""
        self._link(CLUSTER).subscribe(CLUSTER)
        self.run()
        self._is_live = True
        self._look()

    def run(self) -> None:
        """Read responses until there are no more."""
        for _ in range(MANY_STEPS):
            if not self.step():
                return
        raise AssertionError("the server never stops sending")

    def step(self, link: Link | None = None) -> bool:
        """Read one response, of ``link`` or of any stream; False when there is none."""
        link = link or next((each for each in self.links if each.inbox), None)
        if not (link and link.inbox):
            return False
        self._look()  # time may have passed since the last step
        send, message = link.read()
        self._handled = send.type_url
        self._react(link, send, message)
        self._handled = ""
        self._progress()
        self._look()
        return True

    def tick(self) -> None:
        """Handle the deadlines that have passed: drains, TTLs, fetch timeouts, health checks."""
        now = self.server.now
        self.draining = [each for each in self.draining if each[0] > now]
        for link in self.links:
            for (url, name), at in list(link.expiries.items()):
                if at <= now:
                    self._expire(link, url, name)
        for each in (*self.warming.values(), *self.opening.values()):
            if each.waits and each.since + FETCH_S <= now:
                self._give_up(each)
        self._progress()
        self._look()

    def deadline(self) -> float | None:
        """When ``tick`` is due."""
        waiting = (*self.warming.values(), *self.opening.values())
        due = [each.since + FETCH_S for each in waiting if each.waits]
        due += (each.checked_at for name, each in self.warming.items() if not each.waits and name not in self.cold)
        due += (at for at, _ in self.draining)
        due += (at for link in self.links for at in link.expiries.values())
        return min(due, default=None)

    def deadlines(self) -> list[float]:
        """Its own deadline, and those of the server for its streams."""
        each = (self.deadline(), *(link.stream.deadline() for link in self.links))
        return [at for at in each if at is not None]

    def status(self) -> list[TypeStatus]:
        """The server's status of each type of each stream."""
        return [status for link in self.links for status in link.stream.status()]

    def be_slow(self, slow: bool = True) -> None:
        """From now on, requests wait in the outbox until they are delivered; with False they are sent at once."""
        self.slow = slow
        for link in self.links:
            link.slow = slow
            while not slow and link.deliver():
                pass

    def disconnect(self) -> None:
        """End every stream. Responses that were not read are lost."""
        self._is_online = False
        for link in self.links:
            link.disconnect()
        if self._due and self.variant is Variant.SOTW:
            self._left_over = self._error_of_due()
        self._due.clear()

    def resume(self, link: Link) -> None:
        """With ``split``: a stream that ended alone begins anew, if it is still wanted."""
        if link in self.links:
            link.begin_anew()
            for url in link.types:
                link.resume(url)

    def come_from(self, peer: str) -> None:
        """The address of its next connections."""
        self._node[1]["peer"] = peer
        for link in self.links:
            link.peer = peer

    def reconnect(self, order: Callable[[list[Link]], Iterable[Link]] = list) -> None:
        """Open new streams, which show what is held; ``order`` puts the streams in order."""
        self.disconnect()
        self._is_online = True
        for link in order(self.links):
            link.begin_anew()
            for url in link.types:
                if url != CLUSTER:
                    link.resume(url)
                elif self._is_paused():
                    self._owes_clusters = True
                else:
                    self._resume_clusters(link)

    def move(self, server: Server) -> None:
        """End every stream. The next ones connect to another server."""
        self.disconnect()
        self.server = server
        for link in self.links:
            link.server = server

    def texts(self, url: str) -> dict[str, str]:
        """The held resources of a type: name to text."""
        return {name: text for link in self.links for name, text in link.texts(url).items()}

    def serving(self) -> dict[str, dict[str, str]]:
        """What new connections use: listeners, their route configurations, all active clusters and their endpoints."""
        routes = {route for chain in self.listening.values() for route in chain.parsed.names}
        return {
            LISTENER: {name: chain.text for name, chain in self.listening.items()},
            ROUTE: {name: text for name, text in self.available[ROUTE].items() if name in routes},
            CLUSTER: {name: cluster.text for name, cluster in self.active.items()},
            ENDPOINT: {c.assignment: c.endpoints for c in self.active.values() if c.assignment},
        }

    def warm(self, *names: str) -> None:
        """The health checks of these clusters finish from now on."""
        self.cold.difference_update(names)
        self._progress()
        self._look()

    def pending(self, url: str = "") -> list[Send]:
        """Responses that were not read yet, of one type or all."""
        return [send for link in self.links for send in link.pending(url)]

    # -- responses ----------------------------------------------------------------------------------------------

    def _react(self, link: Link, send: Send, message: Response) -> None:
        applied = link.apply(message, self.refuses)
        if send.type_url == CLUSTER:
            self._clusters(link, send, applied)
        elif send.type_url == LISTENER:
            self._listeners(link, send, applied)
        else:
            self._parts(link, send.type_url, applied)
            self._progress()  # before the ACK: Envoy answers CDS first if a cluster has become warm
            link.reply(send, applied.error)

    def _clusters(self, link: Link, send: Send, applied: AppliedPart) -> None:
        for name, text in applied.resources.items():
            self._put_cluster(name, text)
        for name in applied.removed:
            self.active.pop(name, None)
            self.warming.pop(name, None)
        self._due.append((send, applied.error))
        if self.split:
            self._answer()
        else:
            self._progress()
        if not self._has_asked_for_listeners:
            self._has_asked_for_listeners = True
            self._link(LISTENER).subscribe(LISTENER)

    def _put_cluster(self, name: str, text: str) -> None:
        current = self.warming.get(name) or self.active.get(name)
        if current is not None and current.text == text:
            return
        cluster = self.warming[name] = self._new_version(name, text)
        cluster.is_incomplete = name in self.active and self.active[name].is_incomplete
        if cluster.assignment:
            cluster.waits.add((ENDPOINT, cluster.assignment))
            if self.elsewhere:
                self._arrive_at(cluster, "elsewhere")

    def _listeners(self, link: Link, send: Send, applied: AppliedPart) -> None:
        for name, text in applied.resources.items():
            self._put_listener(name, text)
        for name in applied.removed:
            self.opening.pop(name, None)
            self._drain(name)
        if not self.split:
            self._progress()
        link.reply(send, applied.error)

    def _put_listener(self, name: str, text: str) -> None:
        warming, active = self.opening.get(name), self.listening.get(name)
        if active is not None and active.text == text:
            self.opening.pop(name, None)
        elif warming is None or warming.text != text:
            chain = self.opening[name] = self._new_version(name, text)
            wanted = [(ROUTE, route) for route in chain.parsed.names]
            wanted += ((EXTENSION_CONFIG, each) for each in chain.parsed.ecds)
            chain.waits.update(each for each in wanted if each[1] not in self.available[each[0]])

    def _new_version(self, name: str, text: str) -> Version:
        made = Version(name, text, next(self._serials), self.server.now)
        made.waits = {(SECRET, each) for each in made.parsed.sds if each not in self.available[SECRET]}
        return made

    def _parts(self, link: Link, url: str, applied: AppliedPart) -> None:
        """Apply EDS, RDS, ECDS or SDS: parts of clusters and listeners, by name."""
        for name, text in applied.resources.items():
            self._arrive(link, url, name, text)
        if url == ENDPOINT:
            for name in applied.removed:  # a cluster that is active keeps its endpoints
                self._stop_waiting(link, url, name)
        if applied.error:
            for each in self._waiting_on(link, url):
                each.waits = {wait for wait in each.waits if wait[0] != url}
                # A new cluster must not be used until it has its own assignment.
                each.is_incomplete = url != ENDPOINT or each.name in self.active

    def _arrive(self, link: Link, url: str, name: str, text: str) -> None:
        if url == ENDPOINT:
            for cluster in (*self.active.values(), *self.warming.values()):
                if cluster.assignment == name and link.serial in (0, cluster.serial):
                    self._arrive_at(cluster, text)
            return
        self.available[url][name] = text
        self._stop_waiting(link, url, name)
        for chain in self.listening.values():
            chain.is_incomplete = chain.is_incomplete and bool(self._lacking(chain))

    def _arrive_at(self, cluster: Version, endpoints: str) -> None:
        if (ENDPOINT, cluster.assignment) in cluster.waits:
            cluster.waits.discard((ENDPOINT, cluster.assignment))
            cluster.checked_at = self.server.now + cluster.parsed.check_s
        cluster.endpoints, cluster.is_incomplete = endpoints, False

    def _stop_waiting(self, link: Link, url: str, name: str) -> None:
        for each in self._waiting_on(link, url):
            each.waits.discard((url, name))

    def _waiting_on(self, link: Link, url: str) -> list[Version]:
        every = (*self.warming.values(), *self.opening.values())
        return [each for each in every if any(w[0] == url for w in each.waits) and link.serial in (0, each.serial)]

    # -- going live ---------------------------------------------------------------------------------------------

    def _progress(self) -> None:
        """Use warm clusters and listeners, drop unused resources, and send the requests and ACKs that follow."""
        for name, cluster in list(self.warming.items()):
            is_checked = cluster.checked_at <= self.server.now or not self._is_live  # at start, checks pass at once
            if not cluster.waits and name not in self.cold and is_checked:
                self.active[name] = self.warming.pop(name)
        for name, chain in list(self.opening.items()):
            if not chain.waits:
                self._drain(name)
                self.listening[name] = self.opening.pop(name)
        self._subscribe()
        self._answer()

    def _drain(self, name: str) -> None:
        chain = self.listening.pop(name, None)
        if chain is not None:
            self.draining.append((self.server.now + self.drain_s, chain))

    def _give_up(self, each: Version) -> None:
        """``initial_fetch_timeout`` is over: stop waiting. A cluster keeps the endpoints of its previous version."""
        before = self.active.get(each.name)
        if before is not None and before.assignment == each.assignment and not each.endpoints:
            each.endpoints = before.endpoints
        each.waits.clear()

    def _expire(self, link: Link, url: str, name: str) -> None:
        """A TTL ended. Envoy removes clusters and listeners; it keeps using resources of other types."""
        del link.expiries[url, name]
        link.types[url].versions.pop(name, None)
        if url in (CLUSTER, LISTENER):
            link.types[url].resources.pop(name, None)
        if url == CLUSTER:
            self.active.pop(name, None)
            self.warming.pop(name, None)
        elif url == LISTENER:
            self.opening.pop(name, None)
            self._drain(name)

    # -- requests -----------------------------------------------------------------------------------------------

    def _is_paused(self) -> bool:
        return bool(self.warming) and self._is_live and not self.split

    def _answer(self) -> None:
        """Answer CDS, unless it is paused."""
        if not self._is_online or self._is_paused():
            return
        link = self._link(CLUSTER)
        if self._owes_clusters:
            self._resume_clusters(link)
        if self._due:
            due = self._due
            if self.variant is Variant.SOTW:
                due = [(due[-1][0], self._error_of_due())]
            self._due, self._left_over = [], ""
            for send, error in due:
                link.reply(send, error)

    def _resume_clusters(self, link: Link) -> None:
        error, self._left_over = self._left_over, ""
        self._owes_clusters = False
        link.resume(CLUSTER, error)

    def _error_of_due(self) -> str:
        """SotW: the last error is sent in the next request, even if a later response was accepted."""
        return next((error for _, error in reversed(self._due) if error), self._left_over)

    def _subscribe(self) -> None:
        """Subscribe to all names that are used, and drop all other resources."""
        for url, watches in self._watches().items():
            before = self._watched.get(url, set())
            if watches == before:
                continue
            self._watched[url] = watches
            names = {name for name, _ in watches}
            if url in self.available:
                self.available[url] = {name: text for name, text in self.available[url].items() if name in names}
            if self.split:
                self._open(url, before, watches)
            elif self.variant is Variant.SOTW or names != {name for name, _ in before}:
                # Names that change while a SotW response of the type is applied are sent with its ACK.
                say = self.variant is Variant.DELTA or url != self._handled
                self._link(url).watch(url, names, say)

    def _watches(self) -> dict[str, set[Watch]]:
        clusters = (*self.active.values(), *self.warming.values())
        chains = self._chains(self.opening)
        return {
            ENDPOINT: {(c.assignment, c.serial) for c in clusters if c.assignment and not self.elsewhere},
            SECRET: {(name, 0) for each in (*clusters, *chains) for name in each.parsed.sds},
            EXTENSION_CONFIG: {(name, 0) for chain in chains for name in chain.parsed.ecds},
            ROUTE: {(name, 0) for chain in chains for name in chain.parsed.names},
        }

    def _open(self, url: str, before: set[Watch], after: set[Watch]) -> None:
        """With ``split``: open and end the streams, one for each subscription."""
        for name, serial in before - after:
            self._links.pop((url, name, serial)).disconnect()
        for name, serial in sorted(after - before):
            link = self._link(url, name, serial)
            if self._is_online:
                link.subscribe(url, name)
            else:
                link.watch(url, {name})

    def _link(self, url: str, name: str = "", serial: int = 0) -> Link:
        """The stream for a subscription; opened if there is none."""
        key = (url, name, serial) if self.split else ("", "", 0)
        if key not in self._links:
            node_id, fields = self._node
            link = Link(self.server, self.variant, node_id, type_url=key[0], serial=key[2], slow=self.slow, **fields)
            if not self._is_online:
                link.disconnect()
            self._links[key] = link
        return self._links[key]

    # -- lost requests ---------------------------------------------------------------------------------------------

    def blackholes(self) -> Iterator[str]:
        """The reasons for which requests are lost now: of new and old connections, and of retries."""
        for name in sorted(self._used):
            reason = self._reason(name)
            if reason:
                yield reason
        led_to = {inner for cluster in self.active.values() for inner in cluster.inner}
        for name, chain in self.listening.items():
            is_reached = name in led_to or INTERNAL not in chain.parsed.flags
            if is_reached and not chain.is_incomplete:
                yield from (f"listener {name}: no {what}" for what in self._lacking(chain))
        yield from (f"no listener {name}" for name in sorted(self.must_listen - set(self.listening)))

    def _look(self) -> None:
        """Simulate a request on every connection to every cluster that it can reach."""
        if not self._is_live:
            return
        now = self.server.now
        self._used = {name: at for name, at in self._used.items() if now - at < self.retry_s - JUST_BEFORE}
        self._used.update(dict.fromkeys(self._reachable(), now))
        self.lost += (each for each in self.blackholes() if each not in self.lost)
        self.exposures.update(self._exposed())

    def _chains(self, *more: Mapping[str, Version]) -> list[Version]:
        chains = [*self.listening.values(), *(chain for _, chain in self.draining)]
        return [*chains, *(chain for each in more for chain in each.values())]

    def _reachable(self) -> Iterator[str]:
        left, seen = [chain for chain in self._chains() if INTERNAL not in chain.parsed.flags], set[str]()
        while left:
            for name in self._clusters_of(left.pop()):
                yield name
                cluster = self.active.get(name)
                inner = set(cluster.inner if cluster is not None else ()) - seen
                left += (self.listening[each] for each in inner if each in self.listening)
                seen |= inner

    def _clusters_of(self, chain: Version) -> Iterator[str]:
        yield from chain.parsed.to
        for route in chain.parsed.names:
            yield from parse(self.available[ROUTE].get(route, "")).names
        for each in chain.parsed.ecds:
            yield from parse(self.available[EXTENSION_CONFIG].get(each, "")).to

    def _reason(self, name: str, seen: frozenset[str] = frozenset()) -> str:
        """Why a request to a cluster is lost; empty when it is not."""
        cluster = self.active.get(name)
        if cluster is None:
            return f"no cluster {name}"
        members = [member for member in cluster.parsed.members if member not in seen]
        if cluster.parsed.members:
            reasons = [self._reason(member, seen | {name}) for member in members]
            return "" if "" in reasons else f"no member of {name}: {reasons}"
        for inner in cluster.inner:  # `_reachable` follows this listener to its clusters
            if inner not in self.listening:
                return f"no listener {inner} behind {name}"
        return (
            f"no endpoints of {name}" if cluster.assignment and not (cluster.endpoints or cluster.is_incomplete) else ""
        )

    def _lacking(self, chain: Version) -> list[str]:
        wanted = {ROUTE: chain.parsed.names, EXTENSION_CONFIG: chain.parsed.ecds, SECRET: chain.parsed.sds}
        return [
            f"{resource_type(url).alias} {n}"
            for url, names in wanted.items()
            for n in names
            if n not in self.available[url]
        ]

    def _exposed(self) -> Iterator[tuple[str, str, str, str]]:
        for name, chain in self.listening.items():
            for route in chain.parsed.names if not {AUTHZ, INTERNAL} & self._flags(chain) else ():
                text = self.available[ROUTE].get(route, "")
                if ADMIN in parse(text).flags:
                    yield name, chain.text, route, text

    def _flags(self, chain: Version) -> frozenset[str]:
        """The flags of its text, and of its filters by ECDS. Envoy answers 500 itself while it lacks such a filter."""
        available = self.available[EXTENSION_CONFIG]
        return chain.parsed.flags.union(*(parse(available.get(each, AUTHZ)).flags for each in chain.parsed.ecds))
