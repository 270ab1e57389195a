"""A server and its Envoys, whose requests and responses arrive when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from tests.property.swap_servers import Fleet, HalfOpen
from tests.property.swap_watch import Watch
from tests.support.envoy_like import FETCH_S
from tests.support.envoy_link import Link
from tests.support.personas import DRAINED_S, EnvoyLike, assert_in_step, push, spend
from tests.support.texts import TARGET, Site, assignment_of, parse
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.dialect import Variant
from xds.snapshots.order import OrderRules

Made = Callable[[bool, bool], Site]  # guarded or not, with trouble or without
FEATURES = (
    "cuts",  # connections end
    "restarts",  # the server starts anew
    "refusals",  # pushes have what clients refuse
    "groups",  # the node gets a group of its own
    "overlays",  # assignments differ by zone
    "twins",  # two proxies of one node id
    "delays",  # requests, responses and notices arrive one by one
    "singles",  # a stream of one type ends alone, off ADS
    "half-open",  # the server notices late that a connection is broken
    "replicas",  # there are two servers, and clients move between them
    "labels",  # pushes have labels of their own, which repeat
    "sources",  # assignments are observed, beside the pushed ones
    "ttls",  # clusters and listeners have a TTL, in Delta
    "picky",  # a proxy refuses what others take
    "late",  # the assignments of new clusters come a moment after the push
    "live",  # all assignments are observed, and none is pushed
)
COMING_BACK = frozenset(("cuts", "restarts", "replicas"))
REFUSING = frozenset(("refusals", "picky"))
ZONE = "za"
DELAYED_S = 8.0  # at most, while something is on its way
BACK_S = 1.5  # streams that come back do so within a moment
PROOF_S = OrderRules().offer_timeout_s  # of a cluster on separate streams, before its first health check
UNPROMPTED_S = 6.0  # longer waits are of people who read what comes
CAUGHT_UP_S = 40.0  # whatever was in the way
TTLS = {CLUSTER: 60.0, LISTENER: 90.0}
MENDED = " @9"  # what makes another text of the same meaning


class World:
    """What was pushed, who is connected, and what was refused."""

    def __init__(self, variant: Variant, split: bool, features: frozenset[str], first: Made) -> None:
        self.split = split
        self.features = _fair(features, variant, split)
        # On a return; but in Delta on ADS it is known which clusters a client has.
        self.proves_anew = split or (variant is Variant.SOTW and not COMING_BACK.isdisjoint(self.features))
        self.fleet = Fleet(2 if "replicas" in self.features else 1)
        self.server = self.fleet.servers[0]
        self.guarded = False
        self.overlaid = ""
        self.label = ""
        self.ttls = TTLS if "ttls" in self.features else None
        self.pushed: dict[str, Site] = {}
        self.observed: dict[str, str] = {}  # assignments of the default group
        self.picked: set[str] = set()  # what some client alone has refused
        self.late: dict[str, Site] = {}  # by group: what was pushed without some assignments, with them
        self.delayed_s = 0.0
        self.is_moving = False  # the node has changed groups, and its clients may not have followed yet
        self.connections = 0
        self.away: dict[Link, EnvoyLike] = {}  # streams that ended alone
        self.back_s = 0.0  # when they are back at the latest
        self.half_open: list[HalfOpen] = []
        self.untold: set[Link] = set()  # those that do not know of the last push
        self.clients: list[EnvoyLike] = []
        self.watches: list[Watch] = []
        self._publish(first(False, False), True, "default")
        peers = ("one", "two") if "twins" in self.features else ("one",)
        self.clients = [EnvoyLike(self.server, variant, split=split, zone=ZONE, peer=peer) for peer in peers]
        self.watches = [Watch() for _ in self.clients]
        self.slow = "delays" in self.features
        for client in self.clients:
            client.must_listen = {TARGET}
            client.start()
            client.be_slow(self.slow)

    # -- what happens -------------------------------------------------------------------------------------------

    def push(self, made: Made, told: bool = True, group: str = "default") -> None:
        """A whole site."""
        content = made(self.guarded, "refusals" in self.features)
        self._publish(content, told or not self.slow, group if "groups" in self.features else "default")

    def _publish(self, content: Site, told: bool, group: str) -> None:
        content = apart(content) if self.split else content
        self._let_go_live_before(content)
        self._serve(self._without_late(content, group), told, group)

    def _let_go_live_before(self, content: Site) -> None:
        if self.proves_anew:
            self._let_go_live([each for each in self.clients if any(link.is_up for link in each.links)], [content])

    def _serve(self, content: Site, told: bool, group: str) -> None:
        self.is_moving = self.is_moving or (group not in self.pushed and bool(self.pushed))
        content, observed = self._with_observed(content) if group == "default" else (content, self.observed)
        gone, self.observed = self.observed.keys() - observed.keys(), observed
        self.pushed[group] = content
        self._note_content()
        for server in self.fleet.servers:
            server.observe(observed, wake=False)
            push(
                server,
                self.pushed[group],
                group,
                source="api" if self.split else "ads",
                label=self.label,
                wake=False,
                ttls=self.ttls,
            )
            server.observe({}, gone=gone, wake=told)
        self.untold = set() if told else {link for client in self.clients for link in client.links}

    def _without_late(self, content: Site, group: str) -> Site:
        """A push without the assignments of its new clusters, where these come later; no other cluster uses them."""
        before = self.late.pop(group, None) or self.pushed.get(group) or self.pushed.get("default")
        if "late" not in self.features or before is None:
            return content
        used = {assignment_of(*item) for item in before[CLUSTER].items()}
        new = (item for item in content[CLUSTER].items() if item[0] not in before[CLUSTER])
        late = {assignment_of(*item) for item in new}.difference(used)
        if late.isdisjoint(content[ENDPOINT]):
            return content
        self.late[group] = content
        return {**content, ENDPOINT: {name: text for name, text in content[ENDPOINT].items() if name not in late}}

    def _complete(self) -> None:
        """The late assignments are there."""
        late, self.late = self.late, {}
        for group, content in late.items():
            self._serve(content, True, group)

    def _note_content(self) -> None:
        for watch in self.watches:
            watch.note_push(self._current(), len(self.fleet.history))

    def guard(self) -> None:
        """From the next push on there is a path that only listeners with a filter should have."""
        if "groups" not in self.features:  # a move to a group without would lose the filter first
            self.guarded = True

    def drop(self) -> None:
        """The group of the node's own is gone, if there was one. A new process does not know what it had."""
        if "restarts" not in self.features and self.pushed.pop("node", None) is not None:
            self.is_moving = True
            self.server.drop("node")
            self.late.pop("node", None)
            self._note_content()

    def lay_over(self, names: str) -> None:
        """Assignments get a suffix."""
        names = names if "overlays" in self.features else ""
        for watch in self.watches:
            watch.forgive({ENDPOINT: set(names) ^ set(self.overlaid)}, len(self.fleet.history))
        self.overlaid = names
        for server in self.fleet.servers:
            server.lay_over({ZONE: dict.fromkeys(self.overlaid, "+")} if self.overlaid else {})

    def observe(self, texts: Mapping[str, str]) -> None:
        """Assignments take the place of pushed ones, or stand beside them."""
        if "sources" in self.features:
            self.observed |= texts
            self._note_content()
            for server in self.fleet.servers:
                server.observe(texts)

    def _with_observed(self, content: Site) -> tuple[Site, dict[str, str]]:
        """What of a push is pushed, and the assignments that are observed from then on: as long as clusters have them.

        Before that, some are observed though no cluster has them. So they are afterwards, where clients come back that
        may need them.
        """
        named = _assignments(content)
        if "live" in self.features:
            live = {name: text for name, text in content[ENDPOINT].items() if name in named}
            return {**content, ENDPOINT: {}}, live
        if self.features & {"singles", *COMING_BACK}:  # "a removed cluster whose assignment was observed"
            return content, self.observed
        gone = _assignments(self.pushed.get("default", content)) - named
        return content, {name: text for name, text in self.observed.items() if name not in gone}

    def pick(self, text: str, choice: int) -> None:
        """One proxy refuses this text from now on, and no other."""
        client = self.clients[choice % len(self.clients)]
        held = {
            body.decode() for link in client.links for held in link.types.values() for body in held.resources.values()
        }
        if "picky" in self.features and text not in held:
            client.refuses = {text} if text else set()
            self.picked |= {text}

    def name(self, label: str) -> None:
        """The label of the next pushes; none: each has its own."""
        self.label = label if "labels" in self.features else ""

    def move(self, choice: int) -> None:
        """One of the things happens that are about to."""
        moves: list[Callable[[], object]] = []
        for client in self.clients:
            for link in client.links:
                if link.outbox:
                    moves.append(link.deliver)
                if link.inbox:
                    moves.append(partial(client.step, link))
                if link in self.untold and link.is_up:
                    moves.append(partial(self._tell, link))
                if link in self.away:
                    moves.append(partial(self._come_back, link))
        if moves:
            moves[choice % len(moves)]()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        if self.late:
            late_s = min(seconds, BACK_S)
            self._wait_for_streams(late_s)
            seconds -= late_s
            self._complete()
        self._wait_for_streams(seconds)

    def _wait_for_streams(self, seconds: float) -> None:
        """Time passes. Streams that ended alone come back when they are due, whatever else is waited for."""
        if self.away:
            away_s = min(seconds, self.back_s - self.server.now)
            self._pass(away_s)
            seconds -= away_s
            if self.server.now >= self.back_s:
                self._come_all_back()
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        if seconds > UNPROMPTED_S or self.delayed_s + seconds > DELAYED_S:
            self.flush()
        if seconds > UNPROMPTED_S:
            self.notice()
        if seconds > UNPROMPTED_S or not self.slow:
            self._be_slow(False)
            spend(seconds, *self.clients)
            self._be_slow(self.slow)
            self.is_moving = self.is_moving and seconds < CAUGHT_UP_S - BACK_S
            return
        if self.delayed_s + seconds > BACK_S:
            self._be_heard()
        self.delayed_s += seconds
        self.server.elapse(seconds)
        for client in self.clients:
            client.tick()

    def _be_heard(self) -> None:
        """New streams are there within a moment, whatever else is delayed."""
        for client in self.clients:
            for link in client.links:
                if link.stream.node is None:
                    link.deliver()

    def flush(self) -> None:
        """Everything arrives and is read."""
        self._come_all_back()
        for server in self.fleet.servers:
            server.wake()
        self.untold.clear()
        self._be_slow(False)
        for _ in range(3):
            for client in self.clients:
                client.run()
        self._be_slow(self.slow)
        self.delayed_s = 0.0

    def cut(
        self, missed: Sequence[Made], restart: bool, seconds: float, backwards: bool, moves: bool, choice: int
    ) -> None:
        """Streams end, and come back."""
        restart, moves = restart and "restarts" in self.features, moves and "replicas" in self.features
        if not (restart or moves or "cuts" in self.features):
            return
        if self.is_moving:  # "a cut while a cluster of the former group warms may lose requests"
            self.wait(CAUGHT_UP_S)
        gone = self.clients if restart else [self.clients[choice % len(self.clients)]]
        self._let_go_live(gone, [made(self.guarded, False) for made in missed], seconds)
        for client in gone:
            self._disconnect(client, is_noticed=restart or seconds > BACK_S)
        for made in missed:
            self._publish(made(self.guarded, "refusals" in self.features), False, "default")
        self.wait(seconds)
        if restart:
            self._restart()
        for client in gone:
            if moves:
                client.move(next(server for server in self.fleet.servers if server is not client.server))
                self.watches[self.clients.index(client)].forget()
        self.delayed_s = max(self.delayed_s, DELAYED_S - BACK_S)
        for client in gone:
            self.watches[self.clients.index(client)].look(client)
            self.watches[self.clients.index(client)].note_return()
            is_backwards = backwards and not (self.split and _awaits_route(client))
            client.reconnect(reversed if is_backwards else list)

    def _let_go_live(self, clients: Iterable[EnvoyLike], contents: Iterable[Site], away_s: float = 0.0) -> None:
        """Clients have what they wait for, if they would give up before it could come after what happens next.

        That is a push of these ``contents``, or a cut while they are pushed.
        """
        newest_s = max(map(_check_s, (*self.pushed.values(), *contents))) if self.proves_anew else 0.0
        for client in clients:
            warming_s = max((each.parsed.check_s for each in client.warming.values()), default=0.0)
            proof_s = PROOF_S + max(warming_s, newest_s) if self.split else warming_s + newest_s
            if self._gives_up(client, away_s + proof_s):
                self.flush()
                if self.proves_anew:
                    self.wait(proof_s)

    def _gives_up(self, client: EnvoyLike, proof_s: float) -> bool:
        """Whether a client goes live without what it waits for, if its clusters are to be proved anew.

        "A cluster or a listener that warms for 15 s", and "A listener that warms for a new route configuration"
        (docs/protocol.md#what-is-not-promised). Until the clusters that warm are checked, it requests no clusters. The
        newest ones may warm then. "A push that a SotW client refuses without a name, when the client reconnects": for
        how long is not known.
        """
        waiting = [each for each in (*client.warming.values(), *client.opening.values()) if each.waits]
        back_s = self.server.now + proof_s + BACK_S
        if self.slow:  # what it sends then may be on its way for so long
            back_s += UNPROMPTED_S
        may_be_stuck = self.split and self.features & REFUSING and self.features & COMING_BACK
        return any(may_be_stuck or each.since + FETCH_S <= back_s for each in waiting)

    def _disconnect(self, client: EnvoyLike, *, is_noticed: bool) -> None:
        self.away = {link: other for link, other in self.away.items() if other is not client}
        if "half-open" in self.features and not is_noticed:
            self.half_open += [HalfOpen(link) for link in client.links if link.is_up]
        client.disconnect()
        if self.fleet.is_many or "half-open" in self.features:
            self.connections += 1
            client.come_from(f"from {self.connections}")

    def _restart(self) -> None:
        self.notice()
        for server in self.fleet.servers:
            server.restart()
            if self.observed:
                server.observe(self.observed)
        self.lay_over(self.overlaid)
        for watch in self.watches:
            watch.forget()

    def notice(self) -> None:
        """The server notices which connections are broken."""
        for each in self.half_open:
            each.notice()
        self.half_open.clear()

    def end_one(self, choice: int) -> None:
        """The stream of one type ends, and the others go on. It begins anew within a moment."""
        links = [(link, client) for client in self.clients for link in client.links if link.is_up]
        if "singles" in self.features and links:
            link, client = links[choice % len(links)]
            link.disconnect()
            self.back_s = self.server.now + BACK_S if not self.away else self.back_s
            self.away[link] = client

    def _come_back(self, link: Link) -> None:
        client = self.away.pop(link)
        self.watches[self.clients.index(client)].note_return()
        client.resume(link)

    def _come_all_back(self) -> None:
        for link in list(self.away):
            self._come_back(link)

    def _tell(self, link: Link) -> None:
        self.untold.discard(link)
        link.wake()

    def _be_slow(self, slow: bool) -> None:
        for client in self.clients:
            client.be_slow(slow)

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Nothing was lost, opened or said again."""
        for client, watch in zip(self.clients, self.watches, strict=True):
            assert not client.lost, client.lost
            assert not client.exposures, client.exposures
            watch.look(client)

    def finish(self, last: Made) -> None:
        """All that was refused is repaired, all waits end: everybody has what was pushed last."""
        self.slow, self.label, self.ttls = False, "", None
        self.features -= {"late"}
        self.flush()
        self.notice()
        self.check()
        for group in list(self.pushed):
            self._publish(self._mended(last(self.guarded, False)), True, group)
        spend(2 * DRAINED_S + CAUGHT_UP_S, *self.clients)  # an internal listener lingers, and drains then
        self.check()
        for client in self.clients:
            assert_in_step(client, self._expected())

    def _mended(self, content: Site) -> Site:
        """Other texts for those that a proxy alone has refused: it is not sent these again."""
        return {
            url: {name: text + MENDED if f"{name}={text}" in self.picked else text for name, text in texts.items()}
            for url, texts in content.items()
        }

    def _current(self) -> Site:
        if "node" in self.pushed:
            return self.pushed["node"]
        content = self.pushed["default"]
        return {**content, ENDPOINT: {**content[ENDPOINT], **self.observed}}

    def _expected(self) -> Site:
        content = self._current()
        overlaid = "" if "node" in self.pushed else self.overlaid
        laid = {name: text + "+" if name in overlaid else text for name, text in content[ENDPOINT].items()}
        return {**content, ENDPOINT: laid}


def _fair(features: frozenset[str], variant: Variant, split: bool) -> frozenset[str]:
    """Without what a server cannot know, and what a world does not have.

    Another server knows neither what the first one's clients refused, nor which groups they followed. A new process
    does not know what a label meant that repeats, and of two proxies of one node id it is not known which of them shows
    such a label. On separate streams, a new process does not know what a client has of a response that it refused; in
    Delta, nor does the same one when the client returns. Observed assignments of removed clusters are not in the log
    that clients return to; a node's own group has none.
    """
    if "live" in features:
        features -= {"groups", "singles", *COMING_BACK}
    if "replicas" in features:
        features -= {"groups", "refusals", "picky"}
    if "labels" in features:
        features -= {"restarts", "replicas", "twins"}
    if variant is Variant.SOTW:
        features -= {"ttls"}
    if split and features & REFUSING:
        features -= {"restarts"} if variant is Variant.SOTW else {"cuts", "restarts"}
    if split and "restarts" in features:
        features -= {"groups"}
    return features if split else features - {"singles"}


def _awaits_route(client: EnvoyLike) -> bool:
    """Whether it requests a route without a version: "A client on separate streams that requests a route before
    listeners" (docs/protocol.md#what-is-not-promised).
    """
    return any(url == ROUTE for chain in client.opening.values() for url, _ in chain.waits)


def _check_s(content: Site) -> float:
    return max((parse(text).check_s for text in content[CLUSTER].values()), default=0.0)


def _assignments(content: Site) -> set[str]:
    return {assignment_of(*item) for item in content[CLUSTER].items()}


def apart(content: Site) -> Site:
    """No two clusters share an assignment: off ADS, nobody can tell which of them its streams are for."""
    named = {name: text.partition("eds:")[2] for name, text in content[CLUSTER].items() if text.startswith("eds:")}
    clusters = {name: f"eds:{each}{name}" for name, each in named.items()}
    assignments = {f"{each}{name}": content[ENDPOINT][each] for name, each in named.items()}
    return {
        **content,
        CLUSTER: {**content[CLUSTER], **clusters},
        ENDPOINT: {**content[ENDPOINT], **assignments},
    }
