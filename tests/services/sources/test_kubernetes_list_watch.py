"""Lists and watches of the Kubernetes API, line by line, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.kubernetes_api import endpoint, endpoint_slice
from xds.services.sources.kubernetes_list_watch import (
    ApiError,
    Deleted,
    Listed,
    ListWatch,
    Present,
    read_lines,
    status_error,
)
from xds.services.sources.kubernetes_objects import SLICES, EndpointSlice

Json = dict[str, Any]


def line(kind: str, version: object, name: str = "a") -> bytes:
    document = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", **endpoint_slice(name, "web")}
    metadata = {**document["metadata"], **({"resourceVersion": version} if version is not None else {})}
    return json.dumps({"type": kind, "object": {**document, "metadata": metadata}}).encode()


def page(*names: str, version: str = "10", token: str = "") -> Json:
    return {
        "kind": "EndpointSliceList",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"resourceVersion": version, "continue": token},
        "items": [endpoint_slice(name, "web", endpoint("10.0.0.1")) for name in names],
    }


@pytest.fixture
def followed() -> ListWatch[EndpointSlice]:
    """A collection that was listed at the version 10."""
    listed = ListWatch(SLICES, "shop")
    listed.receive_page(page())
    return listed


def test_the_version_of_each_event_is_where_a_watch_resumes(followed: ListWatch[EndpointSlice]) -> None:
    for kind, version in (("ADDED", "11"), ("MODIFIED", "12"), ("BOOKMARK", "20"), ("DELETED", "21")):
        followed.receive_line(line(kind, version))
        assert followed.watch_query(300)["resourceVersion"] == version
    assert followed.path == "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"


@pytest.mark.parametrize("kind", ["ADDED", "BOOKMARK", "DELETED"])
def test_a_version_that_goes_back_needs_a_list(followed: ListWatch[EndpointSlice], kind: str) -> None:
    with pytest.raises(ApiError, match="went back, 10 to 9") as error:
        followed.receive_line(line(kind, "9"))
    assert error.value.is_stale
    assert followed.needs_list


@pytest.mark.parametrize("version", ["abc", "9" * 5_000, "٣"])
def test_versions_that_are_no_numbers_have_no_order(followed: ListWatch[EndpointSlice], version: str) -> None:
    followed.receive_line(line("ADDED", version))
    assert followed.version == version
    followed.receive_newest(page(version="1"))
    assert not followed.needs_list


@pytest.mark.parametrize("version", [None, "", 11])
def test_an_event_without_a_version_ends_the_watch(followed: ListWatch[EndpointSlice], version: object) -> None:
    with pytest.raises(ApiError, match="without resourceVersion"):
        followed.receive_line(line("ADDED", version))
    assert followed.version == "10"


def test_a_newest_version_that_is_older_needs_a_list(followed: ListWatch[EndpointSlice]) -> None:
    followed.receive_newest(page(version="10"))
    followed.receive_newest(page(version="11"))
    assert followed.version == "10"
    followed.receive_newest(page(version="9"))
    assert followed.needs_list


def test_pages_are_one_list(followed: ListWatch[EndpointSlice]) -> None:
    followed.begin_list()
    assert followed.list_query(2) == {"limit": "2"}
    assert followed.receive_page(page("a", "b", token="next")) == []
    assert followed.list_query(2) == {"limit": "2", "continue": "next"}
    assert followed.version == "10"
    *objects, listed = followed.receive_page(page("c", version="30"))
    assert [one.object.key.name for one in objects if isinstance(one, Present)] == ["a", "b", "c"]
    assert isinstance(listed, Listed)
    assert sorted(key.name for key in listed.keys) == ["a", "b", "c"]
    assert followed.version == "30"


def test_pages_of_a_list_that_was_given_up_are_dropped(followed: ListWatch[EndpointSlice]) -> None:
    followed.begin_list()
    followed.receive_page(page("old", token="next"))
    followed.begin_list()
    first, listed = followed.receive_page(page("new"))
    assert isinstance(first, Present)
    assert isinstance(listed, Listed)
    assert [key.name for key in listed.keys] == ["new"]


def test_a_deletion_needs_no_more_than_a_name(followed: ListWatch[EndpointSlice]) -> None:
    document = json.loads(line("DELETED", "11"))
    document["object"]["endpoints"] = "nonsense"
    gone = followed.receive_line(json.dumps(document).encode())
    assert isinstance(gone, Deleted)
    assert gone.key.name == "a"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_lines_are_cut_at_line_feeds_alone(size: int) -> None:
    """JSON may have what Python takes for the end of a line."""
    told = ['{"a": "\u2028\x85"}', '{"b": 1}', '{"c": "\\n"}']
    data = "\n\n".join(told).encode() + b"\n" + b'{"unfinished'
    buffer = bytearray()
    found = [each for at in range(0, len(data), size) for each in read_lines(buffer, data[at : at + size], 100)]
    assert [each.decode() for each in found] == told
    assert buffer == b'{"unfinished'


def test_a_line_without_end_is_bounded() -> None:
    buffer = bytearray()
    assert list(read_lines(buffer, b"x" * 100, 100)) == []
    with pytest.raises(ApiError, match="more than 100 bytes"):
        list(read_lines(buffer, b"x", 100))


def test_a_status_says_how_long_to_wait_and_whether_the_version_is_of_use() -> None:
    details = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 3}
    too_large = {"reason": "Timeout", "details": details, "code": 504}
    error = status_error("watch", too_large)
    assert (error.status, error.retry_after_s, error.is_stale) == (504, 3.0, True)
    assert not status_error("watch", {"code": 500, "details": "none"}).is_stale
    assert status_error("watch", {"code": 410}).is_stale
    assert len(str(status_error("watch", {"message": "x" * 10_000}))) < 600
