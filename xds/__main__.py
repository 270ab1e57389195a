"""``python -m xds``: the ``xds`` command."""

from xds.cli.main import main

main()
