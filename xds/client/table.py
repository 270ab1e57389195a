"""The table of all calls: the methods of every client, those of features included.

Backups and events are not in it: they are streams. `events` is a method of each client.
"""

from __future__ import annotations

from xds.calls import endpoints, fleet, server
from xds.calls import groups as of_groups
from xds.calls import load as of_load
from xds.client.methods import Paged, Sent
from xds.linkerd import calls as linkerd
from xds.mesh import calls as mesh
from xds.services import calls as of_services
from xds.steering import calls as steering


class Calls:
    """The calls of the admin API as methods of a client (docs/python.md)."""

    # Pushes
    apply = Sent(of_groups.apply)
    put = Sent(of_groups.put)
    delete = Sent(of_groups.delete)
    transact = Sent(mesh.transact)
    validate = Sent(of_groups.validate)
    rollback = Sent(of_groups.rollback)
    undo = Sent(of_groups.undo)
    undo_plan = Sent(of_groups.undo_plan)
    progress = Sent(of_groups.progress)
    rollout = Sent(of_groups.rollout)
    rollouts = Paged(of_groups.rollouts)
    change_rollout = Sent(of_groups.change_rollout)

    # Groups
    groups = Paged(of_groups.groups)
    group = Sent(of_groups.group)
    configure_group = Sent(of_groups.configure_group)
    delete_group = Sent(of_groups.delete_group)
    delete_snapshot = Sent(of_groups.delete_snapshot)
    snapshot = Sent(of_groups.snapshot)
    resource = Sent(of_groups.resource)
    resources = Paged(of_groups.resources)
    history = Paged(of_groups.history)
    difference = Paged(of_groups.difference)

    # The fleet
    nodes = Paged(fleet.nodes)
    node_counts = Sent(fleet.node_counts)
    node = Sent(fleet.node)
    disconnect = Sent(fleet.disconnect)
    release_node = Sent(fleet.release_node)
    release_group = Sent(of_groups.release_group)
    node_resources = Paged(fleet.node_resources)
    timeline = Sent(fleet.timeline)
    explain = Sent(fleet.explain)
    explain_node = Sent(fleet.explain_node)
    nacks = Paged(fleet.nacks)
    nacks_by_message = Paged(fleet.nacks_by_message)
    refused_streams = Sent(fleet.refused_streams)
    certificates = Paged(fleet.certificates)

    # Live endpoints
    assignments = Paged(endpoints.assignments)
    assignment = Sent(endpoints.assignment)
    set_endpoints = Sent(endpoints.set_endpoints)
    change_endpoints = Sent(endpoints.change_endpoints)
    reset_endpoints = Sent(endpoints.reset_endpoints)

    # Load, and the policies that steer by it
    load = Paged(of_load.load)
    cluster_load = Sent(of_load.cluster_load)
    load_series = Paged(of_load.load_series)
    policies = Paged(steering.policies)
    policy = Sent(steering.policy)
    policy_history = Paged(steering.policy_history)
    set_policy = Sent(steering.set_policy)
    delete_policy = Sent(steering.delete_policy)

    # Services
    services = Paged(of_services.services)
    service = Sent(of_services.service)
    sources = Paged(of_services.sources)
    source = Sent(of_services.source)
    accept_losses = Sent(of_services.accept_losses)
    registrations = Paged(of_services.registrations)
    registration = Sent(of_services.registration)
    register = Sent(of_services.register)
    deregister = Sent(of_services.deregister)
    begin_maintenance = Sent(of_services.begin_maintenance)
    end_maintenance = Sent(of_services.end_maintenance)
    bindings = Paged(of_services.bindings)
    binding = Sent(of_services.binding)
    bind = Sent(of_services.bind)
    unbind = Sent(of_services.unbind)

    # The mesh
    config_entries = Paged(mesh.config_entries)
    config_entry = Sent(mesh.config_entry)
    put_config_entries = Sent(mesh.put_config_entries)
    put_config_entry = Sent(mesh.put_config_entry)
    delete_config_entry = Sent(mesh.delete_config_entry)
    roll_back_config_entries = Sent(mesh.roll_back_config_entries)
    config_entry_history = Paged(mesh.config_entry_history)
    config_entry_snapshot = Sent(mesh.config_entry_snapshot)
    config_entry_difference = Sent(mesh.config_entry_difference)
    config_entry_undo_plan = Sent(mesh.config_entry_undo_plan)
    discovery_chain = Sent(mesh.discovery_chain)
    walk_chain = Sent(mesh.walk_chain)
    upstreams = Paged(mesh.upstreams)
    group_upstreams = Sent(mesh.group_upstreams)
    set_upstreams = Sent(mesh.set_upstreams)
    delete_upstreams = Sent(mesh.delete_upstreams)
    destination = Sent(linkerd.destination)

    # The server
    alive = Sent(server.alive)
    ready = Sent(server.ready)
    version = Sent(server.version)
    check = Sent(server.check)
    members = Sent(server.members)
    config = Sent(server.config)
    store = Sent(server.store)
    watched_directory = Sent(server.watched_directory)
    whoami = Sent(server.whoami)
    test_access = Sent(server.test_access)
    audit = Paged(server.audit)
    schema = Sent(server.schema)
    bootstrap = Sent(server.bootstrap)
