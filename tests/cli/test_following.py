"""The event feed across lost connections: no event is lost, and none comes twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import pytest

from xds.calls import fleet
from xds.calls.call import ApiCall
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

    def lines(self, call: ApiCall[Any], begun: Callable[[Mapping[str, str]], None]) -> Iterator[str]:
        newest, count = self.newest.pop(0), self.plan.pop(0)
        self.asked.append(call.headers.get("last-event-id", ""))
        start = int(call.headers.get("last-event-id", newest))
        begun({"last-event-id": str(start)})
        yield ""  # a keep-alive line
        for number in range(start + 1, start + 1 + count):
            yield json.dumps({"id": number, "kind": "push"})
        raise LOST


def all_events(after: str) -> ApiCall[None]:
    return fleet.events(after=after)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RETRY_S", 0.0)


def test_changes_before_the_first_event_are_not_missed() -> None:
    feed = Feed(newest=[7, 9, 9], plan=[0, 0, 3])
    assert [event["id"] for event in islice(read_events(feed, all_events), 3)] == [8, 9, 10]
    assert feed.asked == ["", "7", "7"]


def test_following_continues_after_the_last_event() -> None:
    feed = Feed(newest=[7, 9, 12], plan=[2, 1, 5])
    assert [event["id"] for event in islice(read_events(feed, all_events), 5)] == [8, 9, 10, 11, 12]
    assert feed.asked == ["", "9", "10"]


def test_following_begins_at_the_given_cursor() -> None:
    feed = Feed(newest=[7, 7], plan=[0, 2])
    assert [event["id"] for event in islice(read_events(feed, all_events, since="0"), 2)] == [1, 2]
    assert feed.asked == ["0", "0"]
