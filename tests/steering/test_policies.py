"""Policies as documents in the store."""

from __future__ import annotations

import pytest

from tests.steering.assigned import GROUP, KEY, cluster, endpoints, policies_of, policy
from tests.support.plane import Plane
from xds.model.errors import ConflictError, NotFoundError, ValidationError
from xds.push.request import PushOptions
from xds.steering import policies
from xds.steering.policies import KIND, PolicyTable, etag_of
from xds.store.document_keys import document_id, key_of
from xds.store.sqlite.memory import MemoryStore


@pytest.fixture
async def table() -> PolicyTable:
    store = MemoryStore()
    await store.open()
    return PolicyTable(store)


@pytest.mark.parametrize("key", [("edge", "web"), ("a/b", "c/d"), ("%2F", "outbound|80||web.svc")])
def test_a_document_is_found_again_whatever_its_names_hold(key: tuple[str, str]) -> None:
    assert key_of(document_id(key)) == key


async def test_policies_survive_a_restart(plane: Plane) -> None:
    await policies_of(plane).put(KEY, policy())
    again = PolicyTable(plane.store)
    await again.load()
    assert again.of(GROUP) == {"web": policy()}
    assert list(again) == [KEY]


async def test_the_same_policy_again_changes_nothing(table: PolicyTable) -> None:
    assert await table.put(KEY, policy())
    assert not await table.put(KEY, policy())
    assert await table.put(KEY, policy(50))


async def test_a_policy_is_put_only_over_the_one_that_was_read(table: PolicyTable) -> None:
    with pytest.raises(ConflictError):
        await table.put(KEY, policy(), "*")
    await table.put(KEY, policy())
    etag = etag_of(policy())
    await table.put(KEY, policy(50), etag)
    with pytest.raises(ConflictError):
        await table.put(KEY, policy(60), etag)
    with pytest.raises(ConflictError):
        await table.delete(KEY, etag)
    assert table.get(KEY) == policy(50)
    await table.delete(KEY, "*")


async def test_an_unknown_policy_cannot_be_deleted(table: PolicyTable) -> None:
    with pytest.raises(NotFoundError, match="web"):
        await table.delete(KEY)


async def test_there_is_an_end_to_policies(table: PolicyTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "POLICIES_LIMIT", 1)
    await table.put(KEY, policy())
    await table.put(KEY, policy(50))
    with pytest.raises(ValidationError):
        await table.put((GROUP, "other"), policy())


async def test_a_policy_that_cannot_be_read_is_left_out_and_kept(plane: Plane) -> None:
    await plane.store.put_doc(KIND, document_id(KEY), b'{"capacity": 3}')
    again = PolicyTable(plane.store)
    await again.load()
    assert len(again) == 0
    assert len(await plane.store.docs(KIND)) == 1


# The effect of a push on the policies of its group


async def test_a_push_that_removes_resources_that_a_policy_needs_is_warned_of(plane: Plane) -> None:
    await plane.publisher.push(GROUP, [cluster(), endpoints()])
    await policies_of(plane).put(KEY, policy())
    result = await plane.publisher.put(GROUP, cluster(lrs_server=None))
    assert [warning.code for warning in result.warnings] == ["no_load_reports"]
    result = await plane.publisher.push(GROUP, [cluster("other"), endpoints(name="other")])
    assert [warning.code for warning in result.warnings] == ["unknown_cluster"]
    with pytest.raises(ValidationError):
        await plane.publisher.push(GROUP, [cluster("other")], options=PushOptions(strict=True))


async def test_a_push_of_something_else_is_not(plane: Plane) -> None:
    await plane.publisher.push(GROUP, [cluster(lrs_server=None), endpoints()])
    await policies_of(plane).put(KEY, policy())
    assert (await plane.publisher.put(GROUP, endpoints(name="other"))).warnings == ()
    result = await plane.publisher.put(GROUP, endpoints({"za": (1,)}))
    assert [warning.code for warning in result.warnings] == ["no_load_reports", "one_locality"]


async def test_a_group_that_has_settings_only_takes_its_policies_along(plane: Plane) -> None:
    from xds.push.groups import GroupSettings

    await plane.publisher.configure(GROUP, GroupSettings(priority=1))
    policies = policies_of(plane)
    await policies.put(KEY, policy())
    await plane.publisher.delete_group(GROUP)
    assert await plane.store.docs(KIND) == []
    assert policies.find(KEY) is None
