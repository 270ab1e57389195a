"""What each alert of deploy/prometheus fires for, and what it stays silent for: series as Prometheus stores them.

Values are in the notation of promtool: ``0+3x80`` is 0, 3, 6 ... and ``5x80`` is 5 eighty-one times, one every 15 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = Mapping[str, str]

WEB = 'group="default",cluster="web"'
CAPACITY = f'xds_assignment_capacity_rps{{{WEB},target="eu/a"}}'
LOAD = f'xds_assignment_load_rps{{{WEB},target="eu/a"}}'
REPORTING = f'xds_assignment_nodes{{{WEB},source="eu/a",state="reporting"}}'
SILENT = f'xds_assignment_nodes{{{WEB},source="eu/a",state="silent"}}'
SUCCEEDED = 'xds_lrs_requests_total{cluster="web",locality="eu/a",outcome="success"}'
FAILED = 'xds_lrs_requests_total{cluster="web",locality="eu/a",outcome="error"}'
ISSUED = 'xds_lrs_requests_issued_total{cluster="web",locality="eu/a"}'
DROPPED = 'xds_lrs_dropped_total{cluster="web",category="lb"}'
BACKUP = "xds_server_backup_last_success_timestamp_seconds"
SOURCE = 'source="hosts",kind="files"'
OF_SOURCE = {"source": "hosts", "kind": "files"}
# A counter that is 0, and 1 after five minutes.
ONCE = "0x19 1x80"
# What Prometheus adds to each series; alerts that do not aggregate have it.
SCRAPED = {"job": "xds-server", "instance": "xds:18080"}


@dataclass(frozen=True, slots=True)
class AlertCase:
    """An alert fires for the series of ``fires`` and for none of ``silent``.

    ``labels`` are those of the alert beside its own ``labels``; ``summary`` is its text. ``after`` is when it is looked
    at, ``interval`` the time between two values.
    """

    alert: str
    fires: Series
    silent: tuple[Series, ...]
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    after: str = "18m"
    interval: str = "15s"


BUCKET = 'xds_server_convergence_seconds_bucket{group="default",le="%s"}'
FAULTS = ("catalog", "registration", "store_following", "assignment")
NO_FAULTS = {f"xds_server_{name}_failures_total": "4x80" for name in FAULTS}

CASES = (
    AlertCase(
        "XdsServerDown",
        {"up": "0x80"},
        ({"up": "1x80"}, {"up": "1x60 0x5 1x15"}),  # a restart of the server
        "xds:18080 does not answer",
        SCRAPED,
    ),
    AlertCase(
        "XdsServerFault",
        NO_FAULTS | {"xds_server_registration_failures_total": ONCE},
        (NO_FAULTS,),
        "A fault of the server xds:18080 itself",
        {"instance": SCRAPED["instance"]},
        after="10m",
    ),
    AlertCase(
        "XdsPushesSlow",
        {BUCKET % "30.0": "0x80", BUCKET % "60.0": "0+1x80", BUCKET % "+Inf": "0+1x80"},
        ({BUCKET % "30.0": "0+1x80", BUCKET % "60.0": "0+1x80", BUCKET % "+Inf": "0+1x80"}, {}),
        "Pushes to group default take 59.7s until the last proxy has ACKed",
        {"group": "default"},
    ),
    AlertCase(
        "XdsRolloutTakenBack",
        {'xds_server_rollouts_ended_total{result="rolled_back"}': ONCE},
        (
            {'xds_server_rollouts_ended_total{result="rolled_back"}': "3x80"},
            {'xds_server_rollouts_ended_total{result="promoted"}': ONCE},
        ),
        "A careful rollout was taken back",
    ),
    AlertCase(
        "XdsEndpointsMissing",
        {'xds_server_unserved_clusters{group="default"}': "2x80"},
        (
            {'xds_server_unserved_clusters{group="default"}': "0x80"},
            {'xds_server_unserved_clusters{group="default"}': "0x60 1x10 0x10"},  # while instances are replaced
            {},
        ),
        "2 clusters that proxies of group default use have no endpoint that serves",
        {"group": "default"},
    ),
    AlertCase(
        "XdsTlsOff",
        {'xds_server_port_unencrypted{port="http"}': "1x80"},
        ({'xds_server_port_unencrypted{port="http"}': "0x80"},),
        "The port http of xds:18080 is open to other machines and has no TLS",
        {"instance": SCRAPED["instance"], "port": "http"},
    ),
    AlertCase(
        "XdsServerCertificateExpires",
        {'xds_server_certificate_expiry_timestamp_seconds{port="grpc"}': "259200x80"},
        ({'xds_server_certificate_expiry_timestamp_seconds{port="grpc"}': "2592000x80"}, {}),
        "The certificate of xds:18080 (grpc) expires in 2d 23h 42m 0s",
        {"instance": SCRAPED["instance"], "port": "grpc"},
    ),
    AlertCase(
        "XdsPushedCertificateExpires",
        {'xds_server_pushed_certificate_expiry_timestamp_seconds{group="edge"}': "259200x80"},
        ({'xds_server_pushed_certificate_expiry_timestamp_seconds{group="edge"}': "2592000x80"}, {}),
        "A certificate in the resources of group edge expires in 2d 23h 42m 0s",
        {"group": "edge"},
    ),
    AlertCase(
        "XdsRolloutHeld",
        {'xds_server_rollouts{state="held"}': "2x80"},
        ({'xds_server_rollouts{state="held"}': "0x80"}, {'xds_server_rollouts{state="paused"}': "2x80"}, {}),
        "2 careful rollouts are held: they wait for a person",
    ),
    AlertCase(
        "XdsConfigurationRefused",
        {'xds_server_nodes_nacked{group="default",type="clusters"}': "3x80"},
        ({'xds_server_nodes_nacked{group="default",type="clusters"}': "0x80"}, {}),
        "3 nodes of group default reject their clusters",
        {"group": "default", "type": "clusters"},
    ),
    AlertCase(
        "XdsNodesStale",
        {'xds_server_nodes_stale{group="default",type="routes"}': "2x80"},
        ({'xds_server_nodes_stale{group="default",type="routes"}': "0x80"}, {}),
        "2 nodes of group default do not answer for their routes",
        {"group": "default", "type": "routes"},
    ),
    AlertCase(
        "XdsNoNodes",
        {'xds_server_nodes{group="default"}': "0x80", 'xds_server_nodes{group="other"}': "0x80"},
        ({'xds_server_nodes{group="default"}': "0x80", 'xds_server_nodes{group="other"}': "1x80"},),
        "No proxy is connected",
    ),
    AlertCase(
        "XdsNoNodes",  # no group, or no scrape
        {},
        ({'xds_server_nodes{group="default"}': "1x80"},),
        "No proxy is connected",
    ),
    AlertCase(
        "XdsResourcesMissing",
        {'xds_server_missing_resources{type="endpoints"}': "4x80"},
        ({'xds_server_missing_resources{type="endpoints"}': "0x80"}, {}),
        "4 requested endpoints do not exist",
        {"type": "endpoints"},
    ),
    AlertCase(
        "XdsPushesFail",
        {'xds_server_snapshot_commits_total{result="failed"}': ONCE},
        (
            {'xds_server_snapshot_commits_total{result="failed"}': "7x80"},
            {'xds_server_snapshot_commits_total{result="conflict"}': ONCE},
        ),
        "Pushes fail: the store cannot write",
        after="10m",
    ),
    AlertCase(
        "XdsStoreLost",
        {"xds_server_store_lost": "1x80"},
        ({"xds_server_store_lost": "0x80"},),
        "The files of the store were removed or replaced while the server runs: pushes are refused",
    ),
    AlertCase(
        "XdsStoreReadOnly",
        {"xds_server_store_read_only": "1x80"},
        ({"xds_server_store_read_only": "0x80"},),
        "The store is read-only: pushes are refused",
    ),
    AlertCase(
        "XdsStoreCutOff",
        {"xds_server_store_cut_off": "1x80"},
        ({"xds_server_store_cut_off": "0x80"}, {}),
        "A server gets no answer of its database: pushes are refused",
    ),
    AlertCase(
        "XdsStoreCopyFails",
        {"xds_server_store_copy_failed": "1x80"},
        ({"xds_server_store_copy_failed": "0x80"}, {}),
        "A server has no copy of its database: it could not start while the database is away",
    ),
    AlertCase(
        "XdsStoreBehind",
        {"xds_server_store_behind": "2x80"},
        ({"xds_server_store_behind": "0x80"},),
        "The store lacks pushes that were acknowledged",
    ),
    AlertCase(
        "XdsNoLeaseHolder",
        {"xds_server_lease_held": "0x80"},
        ({"xds_server_lease_held": "1x80"}, {}),
        "No server holds the lease: nothing is collected, and no load assignment is decided",
    ),
    AlertCase(
        "XdsServerSilent",
        {"xds_server_unanswered_calls_total": "0+2x80"},
        ({"xds_server_unanswered_calls_total": "5x80"}, {"xds_server_unanswered_calls_total": ONCE}),
        "A server does not answer xds:18080: what is asked there is partial",
        {"instance": "xds:18080"},
    ),
    AlertCase(
        "XdsServerBehindStore",
        {"xds_server_store_lag_seconds": "60x80"},
        ({"xds_server_store_lag_seconds": "1x80"},),
        "A server does not serve what its store has",
    ),
    AlertCase(
        "XdsBackupsFail",
        {'xds_server_backups_total{result="failed"}': ONCE},
        ({'xds_server_backups_total{result="made"}': "0+1x80", 'xds_server_backups_total{result="failed"}': "1x80"},),
        "Backups fail",
    ),
    AlertCase(
        "XdsBackupOld",
        {BACKUP: "0x60"},
        ({BACKUP: "0+3600x60"}, {BACKUP: "_x3 10800x60"}, {}),
        "The last backup was made 2d 1h 0m 0s ago",
        after="49h",
        interval="1h",
    ),
    AlertCase(
        "XdsBackupOld",  # remembered while the server is down, or restarted and has made none
        {BACKUP: "0x30 _x30"},
        ({BACKUP: "0x30 108000x1 _x30"},),
        "The last backup was made 2d 1h 0m 0s ago",
        after="49h",
        interval="1h",
    ),
    AlertCase(
        "XdsForeignPages",
        {'xds_server_http_foreign_refused_total{reason="origin"}': "0+1x80"},
        (
            {'xds_server_http_foreign_refused_total{reason="origin"}': "5x80"},
            {'xds_server_http_foreign_refused_total{reason="origin"}': "0x60 1x20"},  # a single page, for 5 min yet
        ),
        "Requests of foreign pages or with unknown host names are refused: origin",
        {"reason": "origin"},
    ),
    AlertCase(
        "XdsWatchRefused",
        {"xds_server_watch_refused": "2x80"},
        ({"xds_server_watch_refused": "0x80"},),
        "Files of the watched directory cannot be applied: 2 groups are not updated",
    ),
    AlertCase(
        "XdsStreamsRefused",
        {'xds_server_streams_refused_total{reason="forbidden"}': "0+1x80"},
        (
            {'xds_server_streams_refused_total{reason="forbidden"}': "5x80"},
            {'xds_server_streams_refused_total{reason="starting"}': "0+1x80"},
        ),
        "Proxies are refused: forbidden",
        {"reason": "forbidden"},
    ),
    AlertCase(
        "XdsAuthNotReloaded",
        {'xds_server_auth_reloads_total{result="failed"}': ONCE},
        (
            {'xds_server_auth_reloads_total{result="failed"}': "3x80"},
            {'xds_server_auth_reloads_total{result="ok"}': ONCE},
        ),
        "Settings of auth cannot be read again: the previous rules stay in force",
        {"result": "failed", **SCRAPED},
    ),
    AlertCase(
        "XdsFilesExhausted",
        {"xds_server_files_exhausted_total": ONCE},
        ({"xds_server_files_exhausted_total": "4x80"},),
        "No file descriptor is left: new proxies are dropped",
        SCRAPED,
        after="8m",
    ),
    AlertCase(
        "XdsFilesLow",
        {"process_open_fds": "850x80", "process_max_fds": "1000x80"},
        ({"process_open_fds": "790x80", "process_max_fds": "1000x80"},),
        "85% of the file descriptors are in use",
        SCRAPED,
    ),
    AlertCase(
        "XdsContentHeld",
        {'xds_server_nodes_held{group="default"}': "2x80"},
        ({'xds_server_nodes_held{group="default"}': "0x80"},),
        "Content is held for 2 nodes of group default",
        {"group": "default"},
    ),
    AlertCase(
        "XdsOrderGivenUp",
        {'xds_server_order_timeouts_total{type="clusters"}': ONCE},
        ({'xds_server_order_timeouts_total{type="clusters"}': "9x80"},),
        "Pushes continue although clusters are not ready",
        {"type": "clusters"},
        after="10m",
    ),
    AlertCase(
        "XdsEventLoopLate",
        {"xds_server_event_loop_lag_seconds": "0.5x80"},
        (
            {"xds_server_event_loop_lag_seconds": "0.2x80"},
            {"xds_server_event_loop_lag_seconds": "0.01x50 3 0.01x30"},  # once, not for ten minutes
        ),
        "The event loop of the server is 0.5 s late",
        SCRAPED,
    ),
    AlertCase(
        "XdsAssignmentHeld",
        {'xds_server_assignment_sources{standing="held"}': "2x80"},
        (
            {
                'xds_server_assignment_sources{standing="held"}': "0x80",
                'xds_server_assignment_sources{standing="settled"}': "5x80",
            },
        ),
        "The traffic assignment of 2 localities is outdated: their load reports are missing",
    ),
    AlertCase(
        "XdsZoneFull",
        {LOAD: "95x80", CAPACITY: "100x80"},
        (
            {LOAD: "89x80", CAPACITY: "100x80"},
            {LOAD: "95x80", CAPACITY: "0x80"},  # drained, or not known yet
            {
                'xds_assignment_load_rps{group="default",cluster="other",target="other"}': "95x80",
                'xds_assignment_capacity_rps{group="default",cluster="other",target="other"}': "100x80",
            },
        ),
        "eu/a serves 95% of its capacity for web",
        {"group": "default", "cluster": "web", "target": "eu/a", **SCRAPED},
    ),
    AlertCase(
        "XdsOverload",
        {f'xds_assignment_reasons{{{WEB},reason="overload"}}': "1x80"},
        ({f'xds_assignment_reasons{{{WEB},reason="spill"}}': "1x80"},),
        "The demand for cluster web of group default exceeds all capacity",
        {"group": "default", "cluster": "web"},
    ),
    AlertCase(
        "XdsAssignmentNotFollowed",
        {f'xds_assignment_reasons{{{WEB},reason="not_followed"}}': "2x80"},
        ({f'xds_assignment_reasons{{{WEB},reason="followed"}}': "2x80"},),
        "Proxies of 2 localities do not send to a zone of web as decided",
        {"group": "default", "cluster": "web"},
    ),
    AlertCase(
        "XdsPartialReports",
        {REPORTING: "7x80", SILENT: "3x80"},
        ({REPORTING: "8x80", SILENT: "2x80"}, {REPORTING: "0x80", SILENT: "0x80"}),
        "30% of the nodes in eu/a do not report their load",
        {"group": "default", "cluster": "web", "source": "eu/a"},
    ),
    AlertCase(
        "XdsClusterErrors",
        {SUCCEEDED: "0+270x80", FAILED: "0+30x80"},
        (
            {SUCCEEDED: "0+288x80", FAILED: "0+12x80"},
            {SUCCEEDED: "0x80", FAILED: "0+12x80"},  # less than a request a second
        ),
        "10% of the requests to cluster web fail",
        {"cluster": "web"},
    ),
    AlertCase(
        "XdsClusterDrops",
        {ISSUED: "0+270x80", DROPPED: "0+30x80"},
        (
            {ISSUED: "0+288x80", DROPPED: "0+12x80"},
            {ISSUED: "0x80", DROPPED: "0+12x80"},  # less than a request a second
            {ISSUED: "0+300x80"},
        ),
        "Proxies drop 10% of the requests to cluster web",
        {"cluster": "web"},
    ),
    AlertCase(
        "XdsClusterDrops",  # nothing is issued, because all is dropped
        {DROPPED: "0+30x80"},
        ({DROPPED: "0+12x80"},),
        "Proxies drop 100% of the requests to cluster web",
        {"cluster": "web"},
    ),
    AlertCase(
        "XdsSourceFailing",
        {f"xds_server_source_failing{{{SOURCE}}}": "1x80"},
        ({f"xds_server_source_failing{{{SOURCE}}}": "0x80"},),
        "A source of instances cannot be read: hosts (files)",
        OF_SOURCE,
    ),
    AlertCase(
        "XdsSourceSilent",
        {f"xds_server_source_read_time_seconds{{{SOURCE}}}": "60x120"},
        (
            {f"xds_server_source_read_time_seconds{{{SOURCE}}}": "0+15x120"},
            {'xds_server_source_read_time_seconds{source="own",kind="registration"}': "60x120"},
            {f"xds_server_source_read_time_seconds{{{SOURCE}}}": "0x120"},  # never read: it fails, or has just begun
        ),
        "A source of instances was not read for 25m 0s: hosts",
        OF_SOURCE,
        after="26m",
    ),
    AlertCase(
        "XdsSourceHeld",
        {f"xds_server_source_held_services{{{SOURCE}}}": "3x80"},
        ({f"xds_server_source_held_services{{{SOURCE}}}": "0x80"},),
        "hosts lost most instances of 3 services at once; their last good set is kept",
        OF_SOURCE,
    ),
    AlertCase(
        "XdsSourceLeftOut",
        {f"xds_server_source_findings{{{SOURCE}}}": "4x80"},
        ({f"xds_server_source_findings{{{SOURCE}}}": "0x80"},),
        "4 items of hosts cannot be used and are left out",
        OF_SOURCE,
    ),
    AlertCase(
        "XdsSourceBehind",
        {f"xds_server_source_waiting_seconds{{{SOURCE}}}": "90x80"},
        ({f"xds_server_source_waiting_seconds{{{SOURCE}}}": "50x80"},),
        "hosts changes more services than changes_per_s allows; the catalog is behind",
        OF_SOURCE,
    ),
)
