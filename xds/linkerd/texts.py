"""What this feature adds to the description of the admin API."""

from __future__ import annotations

from xds.admin.examples import ApiTexts, example

TEXTS = ApiTexts(
    package="xds.linkerd",
    parameters={
        "authority": "The name or address that a proxy asks for, as `HOST[:PORT]`",
    },
    examples={
        "get_destination": example(**{"authority": "web.default.svc.cluster.local:80", "token": '{"ns": "edge"}'}),
    },
)
