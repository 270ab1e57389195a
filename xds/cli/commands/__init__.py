"""The subcommands' arguments, a module per family; what they do is elsewhere and imported when they run.

Importing a family registers it; the order here is that of ``xds --help``.
"""

# ruff: noqa: I001

from xds.cli.app import run
from xds.cli.commands import server as server
from xds.cli.commands import files as files
from xds.cli.commands import groups as groups
from xds.cli.commands import group as group
from xds.cli.commands import rollouts as rollouts
from xds.cli.commands import nodes as nodes
from xds.cli.commands import load as load
from xds.cli.commands import assignments as assignments
from xds.cli.commands import backups as backups
from xds.cli.commands import access as access
from xds.cli.commands import health as health

__all__ = ["run"]
