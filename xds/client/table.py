"""The table of all calls: the methods of every client, those of features included."""

from __future__ import annotations

from xds.calls import config_entries as entries
from xds.calls import endpoints, fleet
from xds.calls import groups as of_groups
from xds.client.methods import Paged, Sent


class Calls:
    """The calls of the admin API as methods of a client (docs/python.md)."""

    # Pushes
    apply = Sent(of_groups.apply)
    put = Sent(of_groups.put)
    delete = Sent(of_groups.delete)
    transact = Sent(of_groups.transact)
    validate = Sent(of_groups.validate)
    rollback = Sent(of_groups.rollback)
    undo = Sent(of_groups.undo)
    undo_plan = Sent(of_groups.undo_plan)
    progress = Sent(of_groups.progress)

    # Groups
    groups = Paged(of_groups.groups)
    group = Sent(of_groups.group)
    configure_group = Sent(of_groups.configure_group)
    delete_group = Sent(of_groups.delete_group)
    snapshot = Sent(of_groups.snapshot)
    resource = Sent(of_groups.resource)
    history = Paged(of_groups.history)
    difference = Paged(of_groups.difference)

    # The fleet
    nodes = Paged(fleet.nodes)
    node = Sent(fleet.node)
    disconnect = Sent(fleet.disconnect)
    nacks = Paged(fleet.nacks)

    # Live endpoints
    assignments = Paged(endpoints.assignments)
    assignment = Sent(endpoints.assignment)
    set_endpoints = Sent(endpoints.set_endpoints)
    change_endpoints = Sent(endpoints.change_endpoints)
    reset_endpoints = Sent(endpoints.reset_endpoints)

    # Config entries
    config_entries = Paged(entries.config_entries)
    config_entry = Sent(entries.config_entry)
    put_config_entries = Sent(entries.put_config_entries)
    put_config_entry = Sent(entries.put_config_entry)
    delete_config_entry = Sent(entries.delete_config_entry)
    roll_back_config_entries = Sent(entries.roll_back_config_entries)
