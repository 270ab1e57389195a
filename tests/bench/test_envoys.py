"""The bench with real Envoys: what its relay reads along, what it says of results, and small runs of it for real."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest

from bench.envoys import __main__ as command
from bench.envoys import containers, rounds, section, sides, site
from bench.envoys.fleet import NativeEnvoy
from bench.envoys.frames import GrpcMessages
from bench.envoys.kinds import KINDS, first_set
from bench.envoys.scale import Scale
from bench.envoys.tap import Conversation, Ledger
from bench.suite import report
from bench.suite.results import Cell, Results
from tests.support.process import wait_until
from tests.support.resources import CLUSTER_TYPE
from xds.codec.resources import decode_resource
from xds.proto import wire_pb2
from xds.wire.http2.frames import DATA, frame

TINY = Scale(fleets=(2,), variants=("delta",), rounds=1, fillers=2, rps=100.0, pause_s=0.2, trailing_s=0.2, idle_s=0.2)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BODY = b"a resource's bytes"
EXPECTED = [[CLUSTER_TYPE, base64.b64encode(BODY).decode()]]


# The relay


def data_frame(payload: bytes, stream: int = 1, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream, payload)


def grpc(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4) + message


def test_messages_are_found_however_the_bytes_come() -> None:
    first, second, other = b"one", b"t" * 300, b"of another stream"
    whole = grpc(first) + grpc(second)
    stream = [PREFACE, data_frame(whole[:20]), data_frame(grpc(other), 3), frame(8, 0, 0, b"\0\0\1\0")]
    padded = bytes([2]) + whole[20:] + b"\0\0"
    sent = b"".join(stream) + data_frame(padded, flags=8)
    for size in (1, 7, len(sent)):
        messages = GrpcMessages(from_client=True)
        pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert [found for piece in pieces for found in messages.feed(piece)] == [first, other, second]


class Talk:
    """A conversation of one node, message by message."""

    def __init__(self, variant: str, ledger: Ledger) -> None:
        self._conversation = Conversation("ours", variant, ledger)
        self._sotw = variant == "sotw"
        self._preface = PREFACE

    def answer(self, nonce: str, *bodies: bytes, removed: str = "") -> None:
        if self._sotw:
            sotw = wire_pb2.DiscoveryResponse(type_url=CLUSTER_TYPE, nonce=nonce)
            for body in bodies:
                sotw.resources.add(type_url=CLUSTER_TYPE, value=body)
            payload = sotw.SerializeToString()
        else:
            delta = wire_pb2.DeltaDiscoveryResponse(type_url=CLUSTER_TYPE, nonce=nonce)
            for body in bodies:
                delta.resources.add().resource.value = body
            delta.removed_resources.extend([removed] if removed else [])
            payload = delta.SerializeToString()
        self._conversation.said(data_frame(grpc(payload)))

    def ask(self, at: float, nonce: str, refused: str = "") -> None:
        kind = wire_pb2.DiscoveryRequest if self._sotw else wire_pb2.DeltaDiscoveryRequest
        request = kind(type_url=CLUSTER_TYPE, response_nonce=nonce)
        if not nonce:
            request.node = wire_pb2.Node(id="envoy-0").SerializeToString()
        if refused:
            request.error_detail.message = refused
        self._conversation.heard(self._preface + data_frame(grpc(request.SerializeToString())), at)
        self._preface = b""


both_variants = pytest.mark.parametrize("variant", ["sotw", "delta"])


@both_variants
async def test_an_ack_counts_from_the_response_that_has_the_resource(variant: str) -> None:
    ledger = Ledger()
    talk = Talk(variant, ledger)
    talk.ask(1.0, "")
    talk.answer("n1", b"what there was")
    number = ledger.expect("ours", EXPECTED, [])
    other = ledger.expect("go-snapshot", EXPECTED, [])
    talk.ask(2.0, "n1")
    assert await ledger.acked(number, 1, 0.0) == {}
    talk.answer("n2", b"\n\x12" + BODY)
    talk.ask(3.0, "n1")
    assert await ledger.acked(number, 1, 0.0) == {}
    talk.ask(4.0, "n2")
    talk.ask(5.0, "n2")
    assert await ledger.acked(number, 1, 1.0) == {"envoy-0": 4.0}
    assert await ledger.acked(other, 1, 0.0) == {}


@both_variants
async def test_a_refusal_is_no_ack_and_is_told_of(variant: str) -> None:
    ledger = Ledger()
    talk = Talk(variant, ledger)
    number = ledger.expect("ours", EXPECTED, [])
    talk.ask(1.0, "")
    talk.answer("n1", BODY)
    talk.ask(2.0, "n1", refused="no such thing")
    assert await ledger.acked(number, 1, 0.0) == {}
    assert ledger.forget() == [f"ours envoy-0 {CLUSTER_TYPE}: no such thing"]
    assert ledger.forget() == []


@both_variants
async def test_a_removal_is_acked_when_the_name_is_gone(variant: str) -> None:
    ledger = Ledger()
    talk = Talk(variant, ledger)
    number = ledger.expect("ours", [], [[CLUSTER_TYPE, "route-1"]])
    talk.ask(1.0, "")
    talk.answer("n1", b"\n\x07route-1", b"\n\x08route-10")
    talk.ask(2.0, "n1")
    assert await ledger.acked(number, 1, 0.0) == {}
    talk.answer("n2", b"\n\x08route-10", removed="route-1")
    talk.ask(3.0, "n2")
    assert await ledger.acked(number, 1, 1.0) == {"envoy-0": 3.0}


# The kinds of push


def test_all_that_is_pushed_is_valid_and_each_push_is_new() -> None:
    ports = (10_001, 10_002)
    seen = {decode_resource(one).body for one in first_set(ports, 2)}
    for kind in KINDS.values():
        for number in (1, 2, 3):
            bodies = {decode_resource(one).body for one in kind.push(ports, number).put}
            assert bodies, kind.name
            assert not bodies & seen, kind.name
            seen |= bodies
    assert [kind.name for kind in KINDS.values() if kind.removes] == ["route", "inline", "tcp"]


# Containers


def fake_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return program


def test_without_docker_it_is_said_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert containers.missing() == "there is no docker command"
    fake_docker(tmp_path, monkeypatch, "echo 'no daemon' >&2; exit 1")
    assert containers.missing() == "Docker is not at hand (no daemon)"
    fake_docker(tmp_path, monkeypatch, '[ "$1" = info ]')
    assert containers.missing() == "docker compose is not at hand (exit code 1)"
    fake_docker(tmp_path, monkeypatch, "true")
    assert containers.missing() == ""


def test_an_envoy_in_a_container_has_its_files_and_the_image_of_the_compose_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(
        tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/said.partial; mv {tmp_path}/said.partial {tmp_path}/said'
    )
    envoy = containers.ContainerEnvoy("envoy-0", ["-c", "x.json"], tmp_path)
    wait_until((tmp_path / "said").exists, "docker was called")
    envoy.stop()
    said = (tmp_path / "said").read_text().split()
    assert said[:2] == ["run", "--rm"]
    assert said[-3:] == ["envoyproxy/envoy:v1.40.0", "-c", "x.json"]
    assert f"{tmp_path}:{tmp_path}" in said


# The section


def cell(place: str = "native", lost: float = 0.0) -> Cell:
    ours = {"ack_ms": [1.0, 2.0, 3.0], "last_ms": [3.0], "lost": [0.0], "requests": [1_500.0], "cpu_us": [700.0]}
    ours |= {"whole_us": [800.0], "removed_s": [16.5], "told_ms": [2.5]}
    theirs = {**ours, "lost": [lost], "removed_s": []}
    conditions: dict[str, Any] = {"rps": 200.0, "connections": 2, "clusters": 100, "pushes": 10, "trailing_s": 22.0}
    conditions |= {"streams": 5, "variant": "delta", "samples": {"go-snapshot": ["request 7: 503"]}, "refused": []}
    figures = {"ours": ours, "go-snapshot": theirs}
    return Cell(f"{place}/delta/5/route", conditions, figures, measured_at="2026-01-02", commit="abc")


def test_the_page_has_a_section_of_fleets() -> None:
    found = Results({"docker": "there is no docker command"}, {"native/delta/5/route": cell(lost=12.0)})
    text = report.render(Results(), {}, "", found)
    assert "## Fleets of real Envoys\n" in text
    assert "* `route`: a route of RDS moves" in text
    assert "| `native/delta/5/route` | ours | 2 | 3 | 3 | 0 | 1,500 | 700 | 800 | 16.5 |" in text
    assert "|  | go-control-plane, snapshot cache | 2 | 3 | 3 | 12 | 1,500 | 700 | 800 |  |" in text
    assert "the p50 is\n+0.5 ms from that of the relay" in text
    assert "Not measured in containers: there is no docker command\n" in text
    assert "request 7: 503" in "\n".join(section.told(cell(lost=12.0)))


def test_the_page_says_when_the_machine_was_busy() -> None:
    found = Results({"cores": 2}, {one.key: one for one in (cell(), cell("containers"))})
    assert "busy" not in report.render(Results(), {}, "", found)
    found.cells["native/delta/5/route"].load = 4.5
    assert "(load average above 4) in 1 of 1 cells" in report.render(Results(), {}, "", found)


def test_the_page_has_no_section_of_fleets_where_none_was_measured() -> None:
    assert "Fleets" not in report.render(Results(), {}, "", Results())
    both = Results({}, {one.key: one for one in (cell(), cell("containers"))})
    assert "Not measured in containers" not in report.render(Results(), {}, "", both)


# For real


@pytest.mark.soak
def test_two_envoys_get_every_kind_of_push() -> None:
    with sides.ours() as ours, site.running([ours], TINY, 2, "delta", NativeEnvoy) as running:
        idle = rounds.idle_shares(running, TINY.idle_s)
        for kind in KINDS.values():
            figures, conditions = rounds.measure(running, kind, TINY, idle)
            found = figures["ours"]
            assert (len(found["ack_ms"]), len(found["told_ms"]), len(found["cpu_us"])) == (2, 2, 1)
            assert min(found["ack_ms"]) > 0
            assert found["cpu_us"][0] > 0
            assert found["requests"][0] > 0
            assert conditions["refused"] == []
            if kind.name in {"endpoint", "cluster", "listener"}:
                assert found["lost"] == [0], conditions


@pytest.mark.soak
@pytest.mark.timeout(2_000)
@pytest.mark.xdist_group("go-control-plane")
@both_variants
def test_the_bench_writes_its_results_and_the_page(variant: str, tmp_path: Path) -> None:
    few = ["--fleet", "2", "--rounds", "2", "--clusters", "3", "--rps", "50", "--pause", "0.2", "--trailing", "0.5"]
    command.main([*few, "--variants", variant, "--where", "native", "--docs", str(tmp_path)])
    kept = Results.load(tmp_path / "performance" / section.RESULTS).cells
    assert list(kept) == [f"native/{variant}/2/{kind}" for kind in KINDS]
    for found in kept.values():
        for server in section.SERVERS:
            assert len(found.values(server, "ack_ms")) == 4
            assert found.median(server, "requests")
    assert "## Fleets of real Envoys" in (tmp_path / "performance.md").read_text()


def test_a_kind_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--kinds", "route,nonsense"])
    assert "no nonsense: there are endpoint, cluster" in capsys.readouterr().err
