"""The ``xds`` command. A subcommand imports its modules when it runs, so that small subcommands start fast."""

from __future__ import annotations

import sys

from xds.cli.errors import Exit


def main() -> None:
    """Entry point; ends the process with the exit codes of the command line."""
    try:
        from xds.app.commands import run

        run(sys.argv[1:])
    except KeyboardInterrupt:  # while it imports
        sys.exit(Exit.INTERRUPTED)


if __name__ == "__main__":
    main()
