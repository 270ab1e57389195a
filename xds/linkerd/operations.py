"""The operations of this feature in the admin API."""

from __future__ import annotations

from xds.admin.operations import Operation

# Services
GET_DESTINATION = Operation(
    "GET /destinations/{authority}", "linkerd.DestinationAnswer", conflict="The address is that of several workloads"
)
