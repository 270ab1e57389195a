"""What clients of Consul ask first: which agent answers, and whether there is a leader.

The server is its own agent and its own leader. Answers have the fields that clients read
(docs/services.md#consuls-own-paths).
"""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from xds.admin.dependencies import Dependencies, Deps
from xds.consul.http import answer_write, check_datacenter
from xds.consul.routing import consul_router
from xds.services.consul import own_datacenter
from xds.services.core.registered_instance import AGENT_NODE

# Clients choose what they ask for by the release. The paths are compared with this one.
CONSUL_RELEASE = "1.12.9"
_ALIVE = 1  # Serf's status of a member

router = consul_router()


@router.get("/agent/self")
async def get_self(deps: Deps, request: Request) -> Response:
    """The agent: its name, datacenter and release. Consul ignores the datacenter of this request."""
    datacenter, (host, port) = own_datacenter(deps), deps.options.http_address()
    agent = {
        "Config": {
            "Datacenter": datacenter,
            "PrimaryDatacenter": datacenter,
            "NodeName": AGENT_NODE,
            "NodeID": "",
            "Revision": "",
            "Server": True,
            "Version": CONSUL_RELEASE,
        },
        "Member": {
            "Name": AGENT_NODE,
            "Addr": host,
            "Port": port,
            "Tags": {"build": f"{CONSUL_RELEASE}:", "dc": datacenter, "role": "consul", "segment": ""},
            "Status": _ALIVE,
        },
        "Stats": {
            "build": {"version": CONSUL_RELEASE},
            "consul": {"leader": "true", "leader_addr": _address(deps), "server": "true"},
        },
        "Meta": {},
    }
    return answer_write(request, agent)


@router.get("/status/leader")
async def get_leader(deps: Deps, request: Request) -> Response:
    """The address of the leader: that of this server's HTTP port."""
    check_datacenter(request, own_datacenter(deps))
    return answer_write(request, _address(deps))


@router.get("/status/peers")
async def list_peers(deps: Deps, request: Request) -> Response:
    """The addresses of all servers of the datacenter: that of this one."""
    check_datacenter(request, own_datacenter(deps))
    return answer_write(request, [_address(deps)])


def _address(deps: Dependencies) -> str:
    host, port = deps.options.http_address()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
