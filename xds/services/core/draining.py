"""Removed instances drain for a set time, so that their last load reports count and their connections end well."""

from __future__ import annotations

from dataclasses import dataclass

from xds.model.drains import Drains
from xds.services.core.instance import Health, Instance

SocketAddress = tuple[str, int]  # IP address and port


def socket_address(instance: Instance) -> SocketAddress:
    """Address and port. Instances with the same ones are one endpoint."""
    return instance.address, instance.port


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """An instance as its source showed it last.

    Times are epoch seconds. The source has observed the instance since ``since``, and unchanged since ``changed_at``.
    """

    instance: Instance
    since: float
    changed_at: float


InstanceDrains = Drains[SocketAddress, ObservedInstance]  # of one source and service


def begin_draining(drains: InstanceDrains, observed: ObservedInstance, now: float, drain_s: float) -> None:
    """Let an instance drain. If its source showed it as draining already, that time counts."""
    began = observed.changed_at if observed.instance.health is Health.DRAINING else now
    if began + drain_s > now:
        drains.begin(socket_address(observed.instance), observed, began + drain_s)
