"""The operations of this feature in the admin API."""

from __future__ import annotations

from xds.admin.operations import ABSENT, CONDITIONAL, ETAG, HISTORY, OWNED, YAML, Operation

_PUSHED = "admin.pushes.PushOutcome"
_ENTRIES = "mesh.config_entries.EntryOutcome"

# Upstreams
LIST_UPSTREAMS = Operation("GET /upstreams", "mesh.upstreams.UpstreamsPage")
GET_UPSTREAMS = Operation("GET /groups/{group}/upstreams", "mesh.upstreams.GroupUpstreams", ETAG, YAML)
PUT_UPSTREAMS = Operation("PUT /groups/{group}/upstreams", _PUSHED, ETAG, OWNED)
DELETE_UPSTREAMS = Operation("DELETE /groups/{group}/upstreams", _PUSHED)

# Config entries
LIST_CONFIG_ENTRIES = Operation("GET /config-entries", "mesh.config_entries.EntryPage")
PUT_CONFIG_ENTRIES = Operation("POST /config-entries", _ENTRIES, ETAG, OWNED)
LIST_CONFIG_ENTRY_REVISIONS = Operation("GET /config-entries/revisions", "mesh.config_entries.EntryRevisionPage")
GET_CONFIG_ENTRY_REVISION = Operation(
    "GET /config-entries/revisions/{revision}", "mesh.config_entries.EntryContent", HISTORY, YAML
)
GET_CONFIG_ENTRY_DIFFERENCE = Operation(
    "GET /config-entries/revisions/{revision}/diff", "mesh.config_entries.EntryDifferences", HISTORY, YAML
)
GET_CONFIG_ENTRY_UNDO = Operation("GET /config-entries/undo", "mesh.config_entries.EntryUndoProposal", ETAG, ABSENT)
ROLL_BACK_CONFIG_ENTRIES = Operation("POST /config-entries/rollback", _ENTRIES, ETAG, ABSENT, HISTORY, OWNED)
GET_CONFIG_ENTRY = Operation(
    "GET /config-entries/{kind}/{name}", "mesh.config_entries.StoredEntry", ETAG, CONDITIONAL, YAML
)
PUT_CONFIG_ENTRY = Operation("PUT /config-entries/{kind}/{name}", _ENTRIES, ETAG, OWNED)
DELETE_CONFIG_ENTRY = Operation("DELETE /config-entries/{kind}/{name}", _ENTRIES, OWNED)
GET_DISCOVERY_CHAIN = Operation(
    "GET /discovery-chains/{service}", "mesh.discovery_chains.ChainAnswer", ETAG, CONDITIONAL, YAML
)
WALK_CHAIN = Operation("GET /discovery-chains/{service}/walk", "mesh.discovery_chains.WalkAnswer")
