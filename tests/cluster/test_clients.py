"""The command line and the Python client where several servers work on one store."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from tests.cluster.conftest import Site
from tests.cluster.test_members_answer import tell
from tests.support.commands import FinishedCommand, address, xds
from tests.support.resources import static_cluster
from xds.cli.errors import Exit
from xds.client import AsyncClient, PartialAnswerWarning, ServerBusyError
from xds.fleet.event_log import EventKind
from xds.store.member_register import Member

A = static_cluster("a", 80)
SILENT = "xds: server c does not answer: what only it knows is missing\n"


async def run(site: Site, *arguments: str, stdin: str = "") -> FinishedCommand:
    """A command, asking server `a`."""
    port = urlsplit(site.rows[0].url).port
    assert port is not None
    return await asyncio.to_thread(xds, *arguments, stdin=stdin, environment=address(port))


async def test_a_list_shows_which_server_has_a_node(site: Site) -> None:
    site.connect("a", "n1")
    site.connect("b", "n2")
    wide = await run(site, "nodes", "-o", "wide")
    head, first, second = wide.out.splitlines()[:3]
    assert "SERVER" in head and first.split()[0] == "n1" and second.split()[0] == "n2"
    assert wide.code == Exit.OK and "does not answer" not in wide.err
    only = await run(site, "nodes", "--columns", "node,server", "--no-headers")
    assert [line.split() for line in only.out.splitlines()] == [["n1", "a"], ["n2", "b"]]
    described = await run(site, "describe", "node", "n2")
    assert described.code == Exit.OK and ["server:", "b"] in [line.split() for line in described.out.splitlines()]
    del site.rows[1]
    assert "SERVER" not in (await run(site, "nodes")).out


async def test_a_silent_server_is_named_and_ends_a_command_with_a_code(site: Site, silent: str) -> None:
    await site.put("edge", A)
    site.connect("a", "n1").ack(site.held("a"))
    site.rows.append(Member("c", silent))
    for command in (["nodes"], ["nacks"], ["nodes", "-o", "json"], ["rollout", "status", "edge"], ["get", "groups"]):
        found = await run(site, *command)
        assert found.err.count(SILENT) == 1, (command, found.err)
        assert found.code == Exit.UNREACHABLE, (command, found.code)
    assert "n1" in (await run(site, "nodes", "--quiet")).out


async def test_the_list_of_servers_says_which_one_does_not_answer(site: Site, silent: str) -> None:
    tell(site)
    columns = ("members", "--columns", "server,lease,state", "--no-headers")
    found = await run(site, *columns)
    assert [line.split() for line in found.out.splitlines()] == [["a", "holds", "ok"], ["b", "-", "ok"]]
    assert found.code == Exit.OK, found.err
    site.rows[1] = Member("b", silent)
    tell(site)
    found = await run(site, *columns)
    assert found.out.splitlines()[1].split() == ["b", "-", "does", "not", "answer"]
    assert found.code == Exit.NEGATIVE and "did not answer: b" in found.err


async def test_a_node_of_a_silent_server_is_not_called_absent(site: Site, silent: str) -> None:
    site.rows.append(Member("c", silent))
    found = await run(site, "describe", "node", "n1")
    assert found.code == Exit.UNREACHABLE and "silent: c" in found.err


async def test_a_wait_says_what_it_does_not_know(site: Site, silent: str) -> None:
    site.rows.append(Member("c", silent))
    await site.put("edge", A)
    found = await run(site, "rollout", "status", "edge", "--wait", "--timeout", "2s", "--allow-none")
    assert SILENT in found.err and found.code in {Exit.TIMED_OUT, Exit.UNREACHABLE}


async def test_events_are_read_on_from_where_they_ended(site: Site, silent: str) -> None:
    for server, number in (("a", 1), ("b", 2), ("a", 3)):
        log = site[server].plane.fleet.events
        log.record(EventKind.PUSH, "committed", 1_000.0 + number, group="edge", revision=number)
    found = await run(site, "watch", "--since", "0", "--no-follow", "-o", "jsonl")
    first, *rest = found.out.splitlines()
    assert len(rest) == 2
    at = first.partition('"id": "')[2].partition('"')[0]
    assert (await run(site, "watch", "--since", at, "--no-follow", "-o", "jsonl")).out.splitlines() == rest
    site.rows.append(Member("c", silent))
    found = await run(site, "watch", "--since", "0", "--no-follow")
    assert found.err == SILENT and found.code == Exit.UNREACHABLE and len(found.out.splitlines()) == 3


async def test_the_python_client_warns(site: Site, silent: str) -> None:
    site.connect("b", "n1")
    async with AsyncClient(site.rows[0].url) as client:
        (node,) = [node async for node in client.nodes()]
        assert node.server == "b" and (await client.node("n1")).server == "b"
        site.rows.append(Member("c", silent))
        with pytest.warns(PartialAnswerWarning, match="did not answer: c"):
            assert [node.id async for node in client.nodes()] == ["n1"]
        with pytest.raises(ServerBusyError, match="silent: c"):
            await client.node("n2")
