"""Text from proxies, and from upstreams quoted in a NACK, cannot control an operator's terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attack.bystander import GROUP
from tests.support.commands import COMMANDS, address
from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from xds.model.resource_type import CLUSTER
from xds.proto import wire_pb2

NASTY = "esc\x1b]0;PWN\x07\x1b[31mRED\x1b[2J\x9b5n\u202eback\rto\x7f"
COMMANDS_SHOWING_IT = {
    "nodes": ["nodes"],
    "nodes wide": ["nodes", "-o", "wide"],
    "nodes json": ["nodes", "-o", "json"],
    "nodes yaml": ["nodes", "-o", "yaml"],
    "nodes name": ["nodes", "-o", "name"],
    "nacks": ["nacks"],
    "nacks wide": ["nacks", "-o", "wide"],
    "describe": ["describe", "node", NASTY],
    "explain": ["explain", NASTY],
    "config": ["config", NASTY],
    "rollout": ["rollout", "status", GROUP],
    "a node that is not there": ["describe", "node", f"no {NASTY}"],
}


@pytest.fixture(scope="module")
def nasty(victim: ServerProcess) -> Iterator[ServerProcess]:
    """A server with a proxy that says nasty things."""
    with GrpcStream(victim.grpc_port) as stream:
        response = stream.send(sotw(CLUSTER, node_id=NASTY, cluster=NASTY)).receive()
        refusal = wire_pb2.DiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce)
        refusal.error_detail.code, refusal.error_detail.message = 13, f"upstream says {NASTY}"
        stream.send(refusal.SerializeToString())
        wait_until(lambda: any(item["node"] == NASTY for item in victim.nacks()), "the NACK is known")
        yield victim


def on_a_terminal(server: ServerProcess, arguments: list[str], columns: int) -> str:
    """What a command writes whose output is a terminal of this width."""
    environment = {**address(server.http_port), "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)}
    ran = COMMANDS.run_in_terminal(arguments, columns, environment)
    return ran.out + ran.err


@pytest.mark.parametrize("arguments", COMMANDS_SHOWING_IT.values(), ids=COMMANDS_SHOWING_IT)
def test_no_control_character_is_written(nasty: ServerProcess, arguments: list[str]) -> None:
    ran = COMMANDS.run(arguments, environment=address(nasty.http_port))
    for written in (ran.out, ran.err):
        assert not {each for each in written if not each.isprintable()} - {"\n", "\t", "\u202e"}
    if arguments[0] in {"nodes", "nacks", "describe", "explain"} and "-o" not in arguments:
        assert "\\x1b]0;PWN\\x07\\x1b[31mRED" in ran.out + ran.err
        assert "\u202e" not in ran.out


def test_no_control_character_reaches_a_terminal(nasty: ServerProcess) -> None:
    """A wide terminal shows the escaped text whole, a narrow one shortens it."""
    for arguments in (["nodes"], ["nacks"]):
        assert "\\x1b]0;PWN\\x07" in on_a_terminal(nasty, arguments, 1_000)
        for columns in (1_000, 80, 40):
            written = on_a_terminal(nasty, arguments, columns)
            assert not {each for each in written if not each.isprintable()} - {"\n"}
