"""The fixtures of the commands of this feature."""

from tests.cli.conftest import remote

__all__ = ["remote"]
