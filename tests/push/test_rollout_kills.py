"""A server that is killed at any write of a rollout: document and content agree, and the rollout ends in one way.

The writes are those of pushes, of the server's own steps, and of what people do: pause, resume, promote, abort.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.push.test_publisher import GROUP, clusters
from tests.push.test_rollout_runner import PLAN, Proxies
from tests.push.test_rollouts import NODES, OPERATOR, rollout, served
from tests.support.plane import Plane
from xds.model.node import Node
from xds.model.resource_type import CLUSTER
from xds.push.request import PushOptions
from xds.push.rollout_runner import RolloutRunner
from xds.rollouts.rollout import RolloutAction, RolloutState, decode
from xds.store.sqlite.memory import MemoryStore

BEFORE, AFTER = "before", "after"
STEPS_LIMIT = 200


class MortalStore(MemoryStore):
    """A store whose server is killed at the next write: before it is made, or after it and before anybody knows."""

    killed_at = ""
    kills = 0

    async def commit_all(self, *arguments: Any, **options: Any) -> Any:
        return await self._mortally(super().commit_all, *arguments, **options)

    async def put_doc(self, *arguments: Any, **options: Any) -> Any:
        return await self._mortally(super().put_doc, *arguments, **options)

    async def _mortally(self, write: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        at, self.killed_at = self.killed_at, ""
        if at == BEFORE:
            self._kill()
        result = await write(*arguments, **options)
        if at == AFTER:
            self._kill()
        return result

    def _kill(self) -> None:
        self.kills += 1
        raise asyncio.CancelledError  # nothing of the server runs on


class Story:
    """A server on a store that outlives it, with its proxies. The node ``refuses`` rejects what is rolled out."""

    content = "b"  # what is rolled out

    def __init__(self, store: MortalStore, refuses: str) -> None:
        self.store = store
        self.refuses = refuses
        self.plane = Plane(store)
        self.proxies = Proxies(self.plane)

    async def restart(self) -> None:
        await self.plane.publisher.close()
        has = self.proxies.has
        self.plane = Plane(self.store)
        await self.plane.publisher.load()
        self.proxies = Proxies(self.plane)
        self.proxies.has = {name: [] for name in has}

    async def check(self) -> None:
        """Each node is served what document and content of the store say."""
        (document,) = await self.store.docs("rollout")
        stored = decode(GROUP, document.body)
        assert rollout(self.plane) == stored
        newest = (await self.store.history(GROUP))[0]
        assert (newest.kind == "rollback") == (stored.state is RolloutState.ROLLED_BACK)
        assert stored.head == newest.revision - (newest.kind == "rollback")
        contents = [await self.plane.publisher.history.content(GROUP, each) for each in (stored.base, stored.head)]
        base, head = (list(each.snapshot.get(CLUSTER).resources) for each in contents)
        for node, names in served(self.plane).items():
            is_inside = stored.is_open and stored.in_wave(Node(node, GROUP))
            assert names == (head if is_inside or stored.state is RolloutState.PROMOTED else base)

    def answer(self) -> None:
        if self.refuses in {node for node, names in served(self.plane).items() if names == [self.content]}:
            others = Proxies.__new__(Proxies)
            others.plane, others.has = self.plane, self.proxies.has
            others.clients = {self.refuses: self.proxies.clients[self.refuses]}
            others.answer(refused=self.content)
            self.proxies.has[self.refuses] = [self.content]
        self.proxies.answer()

    async def push(self, content: str) -> None:
        await self.plane.publisher.push(GROUP, clusters(content), options=PushOptions(rollout=PLAN))

    async def act(self, chance: random.Random) -> None:
        """What a person may do."""
        if chance.random() < 0.4:
            content = chance.choice("cd")
            await self.push(content)
            self.content = content
        else:
            action = chance.choice((*RolloutAction, RolloutAction.RESUME))
            await self.plane.publisher.rollouts.change(GROUP, action, OPERATOR)

    async def look(self) -> None:
        facts = self.plane.publisher.rollout_facts
        await RolloutRunner(self.plane.publisher.rollouts, self.plane.fleet, facts.gather).look()


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(n, marks=pytest.mark.soak) for n in range(20, 100))])
async def test_a_server_that_is_killed_at_any_write(seed: int) -> None:
    chance = random.Random(seed)
    store = MortalStore()
    await store.open()
    story = Story(store, chance.choice(("", *NODES)))
    await story.plane.publisher.push(GROUP, clusters("a"))
    story.answer()

    async def mortally(step: Callable[[], Awaitable[None]], at: Sequence[str]) -> None:
        """Take a step, and kill the server at its write, or not."""
        store.killed_at = chance.choice(at)
        try:
            await step()
        except asyncio.CancelledError:
            await story.restart()
            (head,) = story.plane.publisher.groups.content(GROUP).snapshot.get(CLUSTER).resources
            story.content = head if head != "a" else story.content
        store.killed_at = ""

    while not await store.docs("rollout"):
        await mortally(lambda: story.push("b"), (BEFORE, AFTER, ""))
    for _ in range(STEPS_LIMIT):
        await story.check()
        if not rollout(story.plane).is_open:
            break
        if chance.random() < 0.8:
            story.answer()
        step = story.look if chance.random() < 0.8 else lambda: story.act(chance)
        await mortally(step, (BEFORE, AFTER, "", ""))
    found = rollout(story.plane)
    if found.state is RolloutState.ROLLED_BACK:
        assert story.refuses or found.reason == "aborted"
    else:
        assert found.state is RolloutState.PROMOTED and (found.is_promoting or not story.refuses)
    kinds = [line.kind for line in await store.history(GROUP)]
    assert kinds.count("rollback") == (found.state is RolloutState.ROLLED_BACK)
    await story.plane.publisher.close()
    await store.close()
