"""The event feed across lost connections: no event is lost, and none comes twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import pytest

from xds.cli.client import Client
from xds.cli.commands import events
from xds.cli.commands.events import read_events
from xds.cli.errors import CommandError, Exit

LOST = CommandError(Exit.UNREACHABLE, "lost")


class Feed(Client):
    """A server with events 1, 2, 3 ...; each connection is lost after the number of lines that ``plan`` gives."""

    def __init__(self, newest: list[int], plan: list[int]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.newest, self.plan = newest, plan
        self.asked: list[str] = []

    def lines(
        self,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        begun: Callable[[Mapping[str, str]], None],
    ) -> Iterator[str]:
        newest, count = self.newest.pop(0), self.plan.pop(0)
        self.asked.append(query.get("last_event_id", ""))
        start = int(query.get("last_event_id", newest))
        begun({"last-event-id": str(start)})
        yield ""  # a keep-alive line
        for number in range(start + 1, start + 1 + count):
            yield json.dumps({"id": number, "kind": "push"})
        raise LOST


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RETRY_S", 0.0)


def test_changes_before_the_first_event_are_not_missed() -> None:
    feed = Feed(newest=[7, 9, 9], plan=[0, 0, 3])
    assert [event["id"] for event in islice(read_events(feed, {}), 3)] == [8, 9, 10]
    assert feed.asked == ["", "7", "7"]


def test_following_continues_after_the_last_event() -> None:
    feed = Feed(newest=[7, 9, 12], plan=[2, 1, 5])
    assert [event["id"] for event in islice(read_events(feed, {}), 5)] == [8, 9, 10, 11, 12]
    assert feed.asked == ["", "9", "10"]


def test_following_begins_at_the_given_cursor() -> None:
    feed = Feed(newest=[7, 7], plan=[0, 2])
    assert [event["id"] for event in islice(read_events(feed, {}, since="0"), 2)] == [1, 2]
    assert feed.asked == ["0", "0"]
