"""The subcommands, one module per family: their arguments, and what they do.

All of these modules are imported at every start. Code that needs the codec or the server is therefore in a module of
`xds.cli` with the name of the family, which is imported when a command runs. Importing a family registers its commands.
"""

# ruff: noqa: I001

from xds.cli.app import run
from xds.cli.commands import serve as serve
from xds.cli.commands import bootstrap as bootstrap
from xds.cli.commands import validate as validate
from xds.cli.commands import convert as convert
from xds.cli.commands import apply as apply
from xds.cli.commands import diff as diff
from xds.cli.commands import resources as resources
from xds.cli.commands import group as group
from xds.cli.commands import rollout as rollout
from xds.cli.commands import nodes as nodes
from xds.cli.commands import troubleshoot as troubleshoot
from xds.cli.commands import load as load
from xds.cli.commands import endpoints as endpoints
from xds.cli.commands import services as services
from xds.cli.commands import registrations as registrations
from xds.cli.commands import bindings as bindings
from xds.cli.commands import destinations as destinations
from xds.cli.commands import sources as sources
from xds.cli.commands import assignments as assignments
from xds.cli.commands import config_entries as config_entries
from xds.cli.commands import chains as chains
from xds.cli.commands import upstreams as upstreams
from xds.cli.commands import backups as backups
from xds.cli.commands import access as access
from xds.cli.commands import health as health
from xds.cli.commands import events as events
from xds.cli.commands import contexts as contexts

__all__ = ["run"]
