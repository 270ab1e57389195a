"""What this feature adds to the description of the admin API."""

from __future__ import annotations

from xds.admin.examples import ApiTexts, example

_EDGE = {"group": "edge"}
_WEB = {"group": "edge", "cluster": "web"}

TEXTS = ApiTexts(
    package="xds.steering",
    tags={
        "assignments": "Policies that turn load into traffic weights.",
    },
    examples={
        "put_assignment": example({"capacity": {"rates": [{"per_endpoint_rps": 100}]}}, **_WEB),
        "list_assignments": example(**_EDGE),
        "get_assignment": example(**_WEB),
        "get_assignment_history": example(**_WEB),
        "delete_assignment": example(**_WEB),
    },
)
