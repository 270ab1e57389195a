"""Pushes a cluster to a running server, waits for the proxies, and prints what each of them has.

``XDS_ADDR`` names the server; by default it is the one on this machine.
"""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta

from envoy_data_plane.envoy.config.cluster import v3 as cluster

from xds import Client
from xds.client import InvalidInputError, NotTakenError, check_taken


def main() -> int:
    """Push; 1 if the server or a proxy rejects it."""
    parser = argparse.ArgumentParser(description="Adds a cluster to a group.")
    parser.add_argument("group")
    parser.add_argument("name")
    parser.add_argument("--timeout-s", type=float, default=1.0)
    given = parser.parse_args()
    spare = cluster.Cluster(
        name=given.name,
        type=cluster.ClusterDiscoveryType.STATIC,
        connect_timeout=timedelta(seconds=given.timeout_s),
    )
    with Client() as client:
        try:
            pushed = check_taken(
                client.put(given.group, "clusters", given.name, spare, message="from Python", wait_s=20)
            )
        except InvalidInputError as error:
            print(*error.findings, sep="\n", file=sys.stderr)
            return 1
        except NotTakenError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"revision {pushed.revision}: {', '.join(pushed.changes['clusters'].added) or 'nothing new'}")
        for node in client.nodes(group=given.group):
            print(f"{node.id}: clusters {node.types['clusters'].state} at revision {node.types['clusters'].revision}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
