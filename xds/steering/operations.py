"""The operations of this feature in the admin API."""

from __future__ import annotations

from xds.admin.operations import ETAG, Operation

# Assignments
LIST_ASSIGNMENTS = Operation("GET /groups/{group}/assignments", "steering.AssignmentPage")
GET_ASSIGNMENT = Operation("GET /groups/{group}/assignments/{cluster}", "steering.PolicyState", ETAG)
GET_ASSIGNMENT_HISTORY = Operation("GET /groups/{group}/assignments/{cluster}/history", "steering.DecisionChangePage")
PUT_ASSIGNMENT = Operation("PUT /groups/{group}/assignments/{cluster}", "steering.PolicyState", ETAG)
DELETE_ASSIGNMENT = Operation("DELETE /groups/{group}/assignments/{cluster}", "steering.PolicyDeleted")
