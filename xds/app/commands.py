"""All commands of the command line. Importing a family registers its commands.

All of these modules are imported at every start, so they import what needs the codec or the server when a command runs.
"""

from xds.app import serve  # noqa: F401
from xds.app.features import FEATURES
from xds.cli.app import run
from xds.cli.commands import (  # noqa: F401
    access,
    apply,
    backups,
    bootstrap,
    contexts,
    convert,
    demo,
    describe,
    diff,
    endpoints,
    envoy,
    events,
    explain,
    group,
    health,
    init,
    load,
    members,
    nodes,
    resources,
    rollout,
    timeline,
    troubleshoot,
    validate,
    version,
)

for feature in FEATURES:
    feature.add_commands()

__all__ = ["run"]
