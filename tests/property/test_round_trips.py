"""Any value survives a push, an export, an apply, a backup, a restore and a conversion."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.admin.conftest import Api
from tests.codec.test_yaml_output import LIKE_NUMBERS, LIKE_OTHER_THINGS, LUA, PEM
from tests.support.examples import examples
from tests.support.plane import Plane
from xds.codec.text import parse_yaml, to_yaml
from xds.envoy.convert import convert
from xds.store.base import Store

Json = dict[str, Any]

SNAPSHOT = "/api/v1/groups/{}/snapshot"
AS_YAML = {"content-type": "application/yaml"}
SHOWN = {"show_secrets": "true"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [*LIKE_NUMBERS, *LIKE_OTHER_THINGS, PEM, LUA, " a\n b ", "a\r\nb", "\ue009\ta\n\tb"]
)
numbers = st.integers(-(2**53), 2**53).map(float) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
structs = st.dictionaries(texts, values, max_size=4)


def cluster(struct: Json, text: str) -> Json:
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "c",
        "type": "STATIC",
        "connect_timeout": "1s",
        "metadata": {"filter_metadata": {"envoy.lb": struct, "by text": {text: text}}},
    }


def key(text: str) -> Json:
    return {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": "s",
        "generic_secret": {"secret": {"inline_string": text}},
    }


def metadata(document: Json) -> object:
    """The values of the pushed cluster, with their types: ``1`` and ``"1"`` differ."""
    (found,) = (each for each in document["resources"] if each["name"] == "c")
    return json.dumps(found["metadata"]["filter_metadata"], sort_keys=True)


async def moved(store: Store) -> Store:
    """Another store, to which a backup of this one was restored."""
    source, target = Api(Plane(store)), Api(Plane())
    await target.plane.store.open()
    archive = await source.client.get("/api/v1/backup")
    restored = await target.client.post("/api/v1/restore", content=archive.content)
    assert restored.status_code == 200, restored.text
    return target.plane.store


async def travel(struct: Json, text: str) -> None:
    api = Api(Plane())
    await api.plane.store.open()
    pushed = await api.put("g", cluster(struct, text), key(text))
    assert pushed.status_code == 200, pushed.text
    first = (await api.client.get(SNAPSHOT.format("g"), params=SHOWN)).json()

    exported = await api.client.get(SNAPSHOT.format("g"), params=SHOWN, headers={"accept": "application/yaml"})
    written = to_yaml(first)
    for document in (exported.text, written):
        applied = await api.client.put(SNAPSHOT.format("copy"), content=document.encode(), headers=AS_YAML)
        assert applied.status_code == 200, applied.text
        copied = (await api.client.get(SNAPSHOT.format("copy"), params=SHOWN)).json()
        assert copied["resources"] == first["resources"] and metadata(copied) == metadata(first)

    again = Plane(await moved(api.plane.store))
    await again.publisher.load()
    assert again.publisher.groups.content("g").etag == api.plane.publisher.groups.content("g").etag
    assert again.publisher.groups.content("g").versions() == first["versions"]
    assert list(again.publisher.groups.content("g").resources()) == list(
        api.plane.publisher.groups.content("g").resources()
    )

    plain = {name: value for name, value in first["resources"][0].items() if name != "@type"}
    converted = convert({"static_resources": {"clusters": [plain]}})
    (read,) = parse_yaml(to_yaml(converted.snapshot))
    assert isinstance(read, dict) and metadata(read) == metadata(first)
    (left,) = parse_yaml(to_yaml(converted.bootstrap))
    assert left == converted.bootstrap


@examples(40, in_soak=500)
@given(structs, texts)
def test_any_value_comes_back(struct: Json, text: str) -> None:
    asyncio.run(travel(struct, text))
