"""The ``xds`` command. Each subcommand imports its modules when it runs, so that light ones start fast."""

from __future__ import annotations

import sys

import xds

SHADOWED = (
    "another package is installed under the import name 'xds' (the xds-protos wheel; grpcio-csds and grpcio-admin"
    " depend on it). Uninstall it and reinstall xds-server."
)


def main() -> None:
    """Entry point; ends the process with the exit codes of the command line."""
    # The other package overwrites xds/__init__.py only, so this module may still be ours.
    if not hasattr(xds, "__version__"):
        sys.exit(SHADOWED)
    from xds.cli.commands import run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
