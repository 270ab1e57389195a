"""The workload of the admin call alone, (g), and the parts of its time."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.fanout import Server
from bench.pushes import GROUP, PROBED, UNPROBED, assignment, cluster, lateness, running_server
from bench.suite import clocks
from bench.suite.floor import Floor, call_in_vain
from bench.suite.goals import LIBRARIES, OURS
from bench.suite.measure import WARM_ROUNDS
from bench.suite.process import cpu_s
from bench.suite.stage import Stage
from xds.codec.resources import decode_document
from xds.proto import wire_pb2

ANSWER_TIMEOUT_S = 300.0
DIVIDED = 1_000
CHANGED = "changed"
SITUATIONS = ("new", CHANGED, "same")
MEDIA = {"json": "application/json", "binary": "application/x-protobuf"}


async def admin_calls(stage: Stage) -> None:
    """``PUT /snapshot`` of N EDS clusters and N assignments, all assignments changed, on disk (SQLite), without
    streams.

    Time from the request to its answer; and how long the event loop was blocked. The latter is how late a callback ran
    that is due every millisecond, counting only time in which the process itself was busy. These callbacks slow the
    answer by 4 to 8 %, so they run on a second server with the same pushes.
    """
    for size in stage.scale.admin:
        found: dict[str, dict[str, list[float]]] = {form: {} for form in MEDIA}
        async with _server(UNPROBED) as plain, _server(PROBED) as probed:
            for number in range(WARM_ROUNDS + stage.rounds):
                for offset, form in enumerate(MEDIA):
                    content = await asyncio.to_thread(body, form, size, len(MEDIA) * number + offset)
                    figures = {**await _answer(plain, content, form), **await _lateness(probed, content, form)}
                    for name, value in figures.items() if number >= WARM_ROUNDS else ():
                        found[form].setdefault(name, []).append(value)
        for form, form_figures in found.items():
            stage.keep(f"g/{form}/{size}", {OURS: form_figures}, clusters=size, assignments=size, form=form)


@dataclass(frozen=True, slots=True)
class _Admin:
    """A running server, its folder, and a client of its admin API."""

    server: Server
    folder: Path
    client: httpx.AsyncClient

    async def put(self, content: bytes, form: str) -> None:
        headers = {"Content-Type": MEDIA[form]}
        (await self.client.put(f"{GROUP}/snapshot", content=content, headers=headers)).raise_for_status()


@asynccontextmanager
async def _server(program: Sequence[str]) -> AsyncIterator[_Admin]:
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder), program) as server:
        async with httpx.AsyncClient(base_url=server.http, timeout=ANSWER_TIMEOUT_S) as client:
            yield _Admin(server, Path(folder), client)


async def _answer(admin: _Admin, content: bytes, form: str) -> dict[str, float]:
    before_s, began = cpu_s(admin.server.pid), time.monotonic()
    await admin.put(content, form)
    took_s = time.monotonic() - began
    spent_s = cpu_s(admin.server.pid) - before_s
    return {"answer_ms": took_s * 1e3, "cpu_ms": spent_s * 1e3, "body_mb": len(content) / 1e6}


async def _lateness(admin: _Admin, content: bytes, form: str) -> dict[str, float]:
    await lateness(admin.server, admin.folder)
    await admin.put(content, form)
    late = await lateness(admin.server, admin.folder)
    return {"held_ms": late.own_ms, "late_ms": late.late_ms}


async def divided_calls(stage: Stage) -> None:
    """A binary `PUT /snapshot` of 1,000 EDS clusters and their assignments as in (g), in milliseconds by part.

    *New*: a new group with content never seen before. *Changed*: all assignments change, the clusters stay. *Same*:
    nothing changes. The server reports the parts by its own clock. *Reading*: bytes to resources, canonical bytes and
    versions. *Rules*: the constraints of Envoy's protos. *References*: what each resource refers to, and whether it
    exists. *Blobs*: resources in their stored form. *Comparing* with the content of the group. *SQL*: rows and blobs.
    *Disk*: the commit until it is durable. *Snapshot*: its sets, their hashes, and what streams will request.
    *Telling*: metrics, events and cache. *Rest*: HTTP, changes of thread, the answer.

    *The libraries alone*: protobuf parses the assignments and writes them canonically, they are hashed twice, and the
    same rows are written from prepared tuples in one transaction. *Rest* is a request with the same body that is
    refused before it is read. Clusters, names, constraints, references, comparison and snapshots come on top of that.
    """
    found: dict[str, dict[str, list[float]]] = {each: {} for each in (*SITUATIONS, LIBRARIES)}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder), [clocks.__name__]) as server,
        closing(Floor(Path(folder), DIVIDED)) as floor,
    ):
        async with httpx.AsyncClient(base_url=server.http, timeout=ANSWER_TIMEOUT_S) as client:
            for number in range(WARM_ROUNDS + stage.rounds):
                for each, figures in (await _divided_round(client, server, Path(folder), floor, number)).items():
                    for name, value in figures.items() if number >= WARM_ROUNDS else ():
                        found[each].setdefault(name, []).append(value)
    for situation in SITUATIONS:
        kinds = {OURS: found[situation], **({LIBRARIES: found[LIBRARIES]} if situation == CHANGED else {})}
        conditions = {"clusters": DIVIDED, "assignments": DIVIDED, "form": "binary"}
        stage.keep(f"call/binary/{DIVIDED}/{situation}", kinds, **conditions)


async def _divided_round(
    client: httpx.AsyncClient, server: Server, folder: Path, floor: Floor, number: int
) -> dict[str, dict[str, float]]:
    """By situation, and of the libraries, milliseconds by part."""
    fresh, changed = (body("binary", DIVIDED, 2 * number + more, number + 1) for more in (0, 1))
    path, parts = f"/api/v1/groups/group-{number}/snapshot", {}
    for situation, content in zip(SITUATIONS, (fresh, changed, changed), strict=True):
        parts[situation] = await _put_divided(client, server, folder, path, content)
    least = {**floor.push(changed), "rest_ms": await call_in_vain(client, path, changed)}
    return {**parts, LIBRARIES: {"answer_ms": sum(least.values()), **least}}


async def _put_divided(
    client: httpx.AsyncClient, server: Server, folder: Path, path: str, content: bytes
) -> dict[str, float]:
    await clocks.read_clocks(server, folder)
    began = time.monotonic()
    answer = await client.put(path, content=content, headers={"Content-Type": MEDIA["binary"]})
    answer_ms = (time.monotonic() - began) * 1e3
    answer.raise_for_status()
    parts_ms = await clocks.read_clocks(server, folder)
    return {"answer_ms": answer_ms, **parts_ms, "rest_ms": answer_ms - sum(parts_ms.values())}


def body(form: str, size: int, edition: int, timeout_s: int = 1) -> bytes:
    """A snapshot as JSON, or as a serialized DiscoveryResponse; the edition is that of the assignments."""
    clusters = [{**cluster(index), "connect_timeout": f"{timeout_s}s"} for index in range(size)]
    resources = [*clusters, *(assignment(index, edition) for index in range(size))]
    text = json.dumps({"resources": resources}).encode()
    if form == "json":
        return text
    message = wire_pb2.DiscoveryResponse()
    for resource in decode_document(text, "json").resources:
        message.resources.add(type_url=resource.type_url, value=resource.body)
    return bytes(message.SerializeToString())
