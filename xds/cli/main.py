"""The ``xds`` command. Each subcommand imports what it needs when it runs: light ones start fast."""

from __future__ import annotations

import sys

import xds

SHADOWED = (
    "another package has taken the import name 'xds' (the xds-protos wheel does; grpcio-csds and grpcio-admin pull"
    " it in). Uninstall it and reinstall xds-server."
)


def main() -> None:
    """Entry point; ends the process with the exit codes of the command line."""
    # The other wheel overwrites xds/__init__.py itself, so that this module may still be ours.
    if not hasattr(xds, "__version__"):
        sys.exit(SHADOWED)
    from xds.cli.commands import run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
