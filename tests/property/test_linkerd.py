"""Any sequence of edits ends, in both clients of the Destination API, at the endpoints that the catalog serves.

The clients are models of the two real proxies; their streams, the connection and the server are real. After every edit
both must hold what is expected, and a proxy that reconnects in between must end there as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.linkerd_client import LinkerdStream, ProxyOf2018, ProxyOfToday
from tests.support.linkerd_site import LinkerdSite, instance
from tests.support.resources import cluster_load_assignment, eds_cluster
from xds.codec.resources import decode_resource
from xds.model.resource import Resource
from xds.push.request import PushOptions
from xds.services.core.instance import Instance

SERVICES = ("web", "spare")
ADDRESSES = st.integers(1, 6).map(lambda last: f"10.0.0.{last}")
INSTANCES = st.builds(
    instance,
    ADDRESSES,
    health=st.sampled_from(["passing", "warning", "critical"]),
    weight=st.integers(0, 2),
    zone=st.sampled_from(["", "z1"]),
    meta=st.sampled_from([{}, {"pod": "a"}, {"linkerd-identity": "a.b"}]),
)
SETS = st.lists(INSTANCES, max_size=5, unique_by=lambda one: one.address)
EDITS: st.SearchStrategy[tuple[str, Any, list[Instance]]] = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(SERVICES), SETS),
    st.tuples(st.just("remove"), st.sampled_from(SERVICES), st.just([])),
    st.tuples(st.just("redirect"), st.booleans(), st.just([])),
    st.tuples(st.just("failover"), st.booleans(), st.just([])),
    st.tuples(st.just("reconnect"), st.booleans(), st.just([])),
)


@pytest.fixture(scope="module")
def site() -> Iterator[LinkerdSite]:
    made = LinkerdSite()
    yield made
    made.close()


class Follower:
    """A proxy and its stream. ``host`` differs from example to example, so that each begins with nothing."""

    def __init__(self, site: LinkerdSite, host: str, proxy: ProxyOfToday | ProxyOf2018) -> None:
        self.proxy = proxy
        self._client = site.client()
        self._host = host
        self._stream = self._open()

    def _open(self) -> LinkerdStream:
        is_today = isinstance(self.proxy, ProxyOfToday)
        return self._client.get(self._host) if is_today else self._client.get_2018(self._host)

    def reconnect(self) -> None:
        """End the stream, and open another one."""
        self._stream.cancel()
        self.proxy.reconnect()
        self._stream = self._open()
        self.proxy.take(self._stream.next())

    def follow(self, expected: set[str], exists: bool) -> None:
        """Read until the proxy holds what is expected; too many messages, or none, are a failure."""
        while set(self.proxy.endpoints) != expected or (not expected and self.proxy.exists is not exists):
            self.proxy.take(self._stream.next())

    def close(self) -> None:
        """End the stream."""
        self._client.close()


class World:
    """What the catalog and the config entries say, in the simplest form."""

    def __init__(self, number: int) -> None:
        self.names = {name: f"{name}-{number}" for name in SERVICES}
        self.shown: dict[str, list[Instance]] = {}
        self.redirects = self.fails_over = False

    def expected(self) -> tuple[set[str], bool]:
        """The places that get requests, and whether the service exists."""
        first = "spare" if self.redirects else "web"
        found = self._usable(first)
        if not found and self.fails_over and not self.redirects:
            found = self._usable("spare")
        return found, self.redirects or self.fails_over or "web" in self.shown

    def _usable(self, service: str) -> set[str]:
        """Weight counts while an instance passes; one with a warning has the weight for that, which is 1."""
        return {
            f"{one.address}:{one.port}"
            for one in self.shown.get(service, ())
            if (one.health == "passing" and one.weight) or one.health == "warning"
        }

    def resolver(self) -> dict[str, Any] | None:
        """The config entry of the service."""
        if self.redirects:
            return {"Redirect": {"Service": self.names["spare"]}}
        return {"Failover": {"*": {"Service": self.names["spare"]}}} if self.fails_over else None


_numbers = iter(range(1, 1_000_000))


@examples(12)
@given(st.lists(EDITS, min_size=1, max_size=8))
def test_any_edits_end_at_the_expected_endpoints_in_both_clients(site: LinkerdSite, edits: list[Any]) -> None:
    world = World(next(_numbers))
    host = f"{world.names['web']}.default.svc.cluster.local"
    followers = [Follower(site, host, proxy) for proxy in (ProxyOfToday(), ProxyOf2018())]
    try:
        for edit in edits:
            apply(site, world, followers, *edit)
            for follower in followers:
                follower.follow(*world.expected())
        today = followers[0].proxy
        assert isinstance(today, ProxyOfToday) and not today.violations
    finally:
        for follower in followers:
            follower.close()


def apply(
    site: LinkerdSite, world: World, followers: list[Follower], kind: str, of: Any, instances: list[Instance]
) -> None:
    """Make one edit, in the model and in the server."""
    if kind == "put":
        world.shown[of] = instances
        site.put(world.names[of], *instances)
    elif kind == "remove":
        world.shown.pop(of, None)
        site.remove(world.names[of])
    elif kind == "reconnect":
        followers[of].follow(*world.expected())
        followers[of].reconnect()
    else:
        before = world.resolver()
        setattr(world, "redirects" if kind == "redirect" else "fails_over", of)
        configure(site, world, before)


def configure(site: LinkerdSite, world: World, before: dict[str, Any] | None) -> None:
    """Write or delete the resolver."""
    now, name = world.resolver(), world.names["web"]
    if now is not None:
        site.write({"Kind": "service-resolver", "Name": name, **now})
    elif before is not None:
        site.delete("service-resolver", name)


NOBODY = "linkerd@127.0.0.1"  # the node of a proxy that says nothing of itself
GROUPS = ("default", NOBODY)  # the one of its id is before the default one
OPTIONS = PushOptions(allow_empty=True)
PUSHES: st.SearchStrategy[tuple[str, str, frozenset[int]]] = st.one_of(
    st.tuples(st.just("push"), st.sampled_from(GROUPS), st.frozensets(st.integers(81, 84), max_size=3)),
    st.tuples(st.sampled_from(["drop", "delete", "undo"]), st.sampled_from(GROUPS), st.just(frozenset[int]())),
)


Revisions = list[tuple[int, frozenset[int] | None]]  # number, and ports of the cluster; None: there is none


@examples(12)
@given(st.sampled_from(["", ".example"]), st.lists(PUSHES, min_size=1, max_size=8))
def test_any_pushes_end_at_the_endpoints_of_the_proxys_group(
    site: LinkerdSite, domain: str, edits: list[tuple[str, str, frozenset[int]]]
) -> None:
    """Clusters that go and come, with names of our grammars and others; groups that come, go and are undone.

    A proxy without a group keeps what it has.
    """
    name = f"pushed-{next(_numbers)}{domain}"
    served: dict[str, Revisions] = {}
    edit_group(site, name, served, "push", "default", frozenset({81}))
    followers = [Follower(site, name, proxy) for proxy in (ProxyOfToday(), ProxyOf2018())]
    now: frozenset[int] | None = frozenset({81})
    try:
        for follower in followers:
            follower.follow({"127.0.0.1:81"}, True)
        for edit in edits:
            edit_group(site, name, served, *edit)
            _, now = next((served[group][-1] for group in reversed(GROUPS) if group in served), (0, now))
            for follower in followers:
                follower.follow({f"127.0.0.1:{port}" for port in now or ()}, now is not None)
        today = followers[0].proxy
        assert isinstance(today, ProxyOfToday) and not today.violations
    finally:
        for follower in followers:
            follower.close()
        for group in served:
            site.run(site.publisher.delete_group(group, OPTIONS))


def edit_group(
    site: LinkerdSite, name: str, served: dict[str, Revisions], kind: str, group: str, ports: frozenset[int]
) -> None:
    """Make one edit, in the model and in the server."""
    revisions = served.get(group, [])
    if kind == "delete" and revisions:
        site.run(site.publisher.delete_group(group, OPTIONS))
        del served[group]
    elif kind == "undo" and len(revisions) > 1:
        number, before = revisions[-2]
        revisions.append((site.run(site.publisher.rollback(group, number, OPTIONS)).revision, before))
    elif kind in ("push", "drop"):
        found = ports if kind == "push" else None
        pushed = site.run(site.publisher.push(group, resources_of(name, found), options=OPTIONS))
        served.setdefault(group, []).append((pushed.revision, found))


def resources_of(name: str, ports: frozenset[int] | None) -> list[Resource]:
    """A cluster with endpoints at these ports; None: another cluster alone."""
    found = [eds_cluster("other")]
    if ports is not None:
        found += [eds_cluster(name), cluster_load_assignment(name, *sorted(ports))]
    return [decode_resource(one) for one in found]
