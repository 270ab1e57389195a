"""A node as selectors see it."""

from __future__ import annotations

from xds.filter.data import Record
from xds.model.node import Node


def node_record(node: Node) -> Record:
    """``node.id``, ``node.cluster``, ``node.locality.*``, ``node.metadata.*`` and ``node.user_agent.*`` (DESIGN 4.1).

    Only ``metadata`` is a plain map: its keys may be missing, the other fields may be empty.
    """
    locality = node.locality
    return Record(
        node=Record(
            id=node.id,
            cluster=node.cluster,
            locality=Record(region=locality.region, zone=locality.zone, sub_zone=locality.sub_zone),
            metadata=node.metadata,
            user_agent=Record(name=node.user_agent_name, version=node.user_agent_version),
        )
    )


NODE_SHAPE = node_record(Node(""))
