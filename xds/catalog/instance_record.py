"""Instances as records for filters, in the names of Consul: ``Node``, ``Service`` and ``Checks``."""

from __future__ import annotations

from xds.catalog.instance import Health, Instance
from xds.filter.values import FixedRecord


def instance_record(service: str, one: Instance, health: Health | None = None) -> FixedRecord:
    """``Node.*``, ``Service.*`` and ``Checks.*``, as selectors name them.

    ``Meta`` and ``Ports`` are plain maps, whose keys may be missing. ``Service.Health`` is the worst status of the
    checks, or the given one.
    """
    where = one.locality
    return FixedRecord(
        Node=FixedRecord(Node=one.node, Datacenter=one.datacenter, Meta=dict(one.node_meta)),
        Service=FixedRecord(
            ID=one.id,
            Service=service,
            Address=one.address,
            Port=one.port,
            Ports=dict(one.ports),
            Tags=one.tags,
            Meta=dict(one.meta),
            Weights=FixedRecord(Passing=one.weight, Warning=one.warning_weight),
            Locality=FixedRecord(Region=where.region, Zone=where.zone, SubZone=where.sub_zone),
            Health=(health if health is not None else one.health).value,
        ),
        Checks=[FixedRecord(CheckID=check.id, Name=check.name, Status=check.status.value) for check in one.checks],
    )


INSTANCE_SHAPE = instance_record("", Instance("", "", 0))
