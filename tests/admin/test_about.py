"""Schemas over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import jsonschema_rs
import pytest

from tests.admin.conftest import Api
from tests.support.resources import CLUSTER_TYPE, static_cluster


@pytest.mark.parametrize("type", ["clusters", "envoy.config.cluster.v3.Cluster", quote(CLUSTER_TYPE, safe="")])
async def test_the_schema_of_a_type(api: Api, type: str) -> None:
    answer = await api.client.get(f"/api/v1/schema/{type}")
    assert answer.headers["content-type"] == "application/schema+json"
    assert jsonschema_rs.validator_for(answer.json()).is_valid(static_cluster("a", 80))


async def test_the_schema_of_a_push(api: Api) -> None:
    await api.put("edge", static_cluster("a", 80))
    schema = (await api.client.get("/api/v1/schema/snapshot")).json()
    snapshot = (await api.client.get("/api/v1/groups/edge/snapshot")).json()
    assert jsonschema_rs.validator_for(schema).is_valid(snapshot)


async def test_a_type_that_is_not_in_the_api(api: Api) -> None:
    assert (await api.client.get("/api/v1/schema/made.up.Type")).status_code == 404
