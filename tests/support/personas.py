"""Clients in memory that behave like Envoy and gRPC, and notice when a request would have been lost.

Texts say what refers to what: a listener's text is the name of its route configuration, a route configuration's text
names its clusters, separated by blanks. Sources: the traces of spec/real_clients.md 2 and 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from tests.support.sansio import Client, Content, Response, Server, make_resource, names_of
from xds.model.resource import Reference
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.draft import Variant
from xds.protocol.events import Send

TARGET = "svc"
MANY_STEPS = 10_000


def push(server: Server, content: Content, group: str = "default") -> None:
    """Publish texts, with the references that the codec would find in them."""
    resources = []
    for url, texts in content.items():
        for name, text in texts.items():
            references = {
                LISTENER: (Reference(ROUTE, text, "ads"),),
                ROUTE: tuple(Reference(CLUSTER, each) for each in text.split()),
                CLUSTER: (Reference(ENDPOINT, name, "ads"),),
            }
            resources.append(make_resource(url, name, text, references=references.get(url, ())))
    server.push_resources(resources, group, types=content)


class Persona(Client, ABC):
    """A client that reads its inbox one response at a time. ``lost`` says when traffic had nowhere to go."""

    def __init__(self, server: Server, variant: Variant, node_id: str = "node", **fields: Any) -> None:
        self.lost: list[str] = []
        super().__init__(server, variant, node_id, **fields)

    def run(self) -> None:
        """Read until nothing comes any more."""
        for _ in range(MANY_STEPS):
            if not self.step():
                return
        raise AssertionError("the server never stops sending")

    def step(self) -> bool:
        """Read one response; False when there is none."""
        if not self.inbox:
            return False
        send, message = self.read()
        self.react(send, message)
        self.lost += self.blackholes()
        return True

    @abstractmethod
    def react(self, send: Send, message: Response) -> None:
        """Do with a response what this kind of client does."""

    @abstractmethod
    def blackholes(self) -> Iterable[str]:
        """What a request would run into now."""


class EnvoyLike(Persona):
    """Wildcard clusters and listeners; withholds the answer to CDS while a cluster warms; drains nothing."""

    def __init__(self, server: Server, variant: Variant, node_id: str = "node", **fields: Any) -> None:
        self.active: set[str] = set()
        self.warming: set[str] = set()
        self.routes: dict[str, str] = {}
        self.serving: dict[str, str] = {}  # listener to the route configuration it uses now
        self.refuses: set[str] = set()  # texts of clusters that are NACKed
        self._answer_due: tuple[Send, str] | None = None
        self._is_live = False
        super().__init__(server, variant, node_id, **fields)

    def start(self) -> None:
        """The first request of the first stream."""
        self.subscribe(CLUSTER)
        self.run()
        self._is_live = True

    def reconnect(self, urls: Iterable[str] = ()) -> None:
        self._answer_due = None
        super().reconnect(urls)

    def react(self, send: Send, message: Response) -> None:
        react = {CLUSTER: self._clusters, ENDPOINT: self._endpoints, LISTENER: self._listeners, ROUTE: self._routes}
        react[send.type_url](send, message)

    def blackholes(self) -> Iterable[str]:
        if not self._is_live:
            return
        for route in self.serving.values():
            for name in self.routes.get(route, "").split():
                if name not in self.active:
                    yield f"{route}: no cluster {name}"
                elif not self.texts(ENDPOINT).get(name):
                    yield f"{route}: no endpoints of {name}"

    def give_up_warming(self) -> None:
        """initial_fetch_timeout passed: clusters become active with what they have."""
        self._warmed(set(self.warming))

    def _clusters(self, send: Send, message: Response) -> None:
        before = dict(self.types[CLUSTER].resources)
        error = "refused" if self._has_refused(message) else ""
        if error:
            self._answer_due = (send, error)
        else:
            self.hold(message)
            self._answer_due = (send, "")
            self._changed(before)
        self._answer_if_warm()
        if LISTENER not in self.types:
            self.subscribe(LISTENER)

    def _changed(self, before: dict[str, bytes]) -> None:
        clusters = self.types[CLUSTER].resources
        changed = {name for name, body in clusters.items() if before.get(name) != body}
        self.active &= set(clusters)
        self.warming = (self.warming | changed) & set(clusters)
        asked = self.types[ENDPOINT].names if ENDPOINT in self.types else set()
        # SotW: Envoy asks for the assignments of warming clusters again; Delta: it does not (real_clients 0.1).
        if asked != set(clusters) or (changed and self.variant is Variant.SOTW):
            self.want(ENDPOINT, clusters)

    def _endpoints(self, send: Send, message: Response) -> None:
        self.hold(message)
        self.reply(send)
        self._warmed({*names_of(message), *send.response.removed} & self.warming)

    def _warmed(self, names: set[str]) -> None:
        self.active |= names
        self.warming -= names
        self._answer_if_warm()

    def _answer_if_warm(self) -> None:
        if self._answer_due is not None and not self.warming:
            (send, error), self._answer_due = self._answer_due, None
            self.reply(send, error)

    def _listeners(self, send: Send, message: Response) -> None:
        self.hold(message)
        self._serve()
        self.reply(send)

    def _routes(self, send: Send, message: Response) -> None:
        self.hold(message)
        self.routes = self.texts(ROUTE)
        self.reply(send)
        self._serve()

    def _serve(self) -> None:
        """A changed listener serves when its routes are there; the one before does until then."""
        listeners = self.texts(LISTENER)
        ready = {name: route for name, route in listeners.items() if route in self.routes}
        self.serving = {**{n: r for n, r in self.serving.items() if n in listeners}, **ready}
        wanted = {*listeners.values(), *self.serving.values()}
        if wanted != (self.types[ROUTE].names if ROUTE in self.types else set()):
            self.want(ROUTE, wanted)
            self.routes = self.texts(ROUTE)

    def _has_refused(self, message: Response) -> bool:
        return any(text.encode() in message.SerializeToString() for text in self.refuses)


class GrpcLike(Persona):
    """Names everything; ACKs first and asks for the next type then; moves over when the new clusters are ready."""

    def __init__(self, server: Server, node_id: str = "node", **fields: Any) -> None:
        self.in_use: set[str] = set()
        self.wanted: set[str] = set()  # what the last route configuration leads to
        super().__init__(server, Variant.SOTW, node_id, **fields)

    def start(self) -> None:
        """The first request of a channel to the target."""
        self.subscribe(LISTENER, TARGET)
        self.run()

    def react(self, send: Send, message: Response) -> None:
        self.hold(message)
        self.reply(send)
        self._ask(ROUTE, set(self.texts(LISTENER).values()))
        if self.texts(ROUTE):
            self.wanted = {name for clusters in self.texts(ROUTE).values() for name in clusters.split()}
        self._ask(CLUSTER, self.in_use | self.wanted)
        self._ask(ENDPOINT, set(self.texts(CLUSTER)))
        if self.wanted <= set(self.texts(CLUSTER)) & set(self.texts(ENDPOINT)):
            self.in_use = self.wanted
            self._ask(CLUSTER, self.in_use)
            self._ask(ENDPOINT, self.in_use)

    def blackholes(self) -> Iterable[str]:
        if self.in_use and not self.texts(LISTENER):
            yield f"no listener {TARGET}"
        yield from (f"no cluster {name}" for name in self.in_use if name not in self.texts(CLUSTER))
        yield from (f"no endpoints of {name}" for name in self.in_use if not self.texts(ENDPOINT).get(name))

    def _ask(self, url: str, names: set[str]) -> None:
        if names != (self.types[url].names if url in self.types else set()):
            self.want(url, names)
