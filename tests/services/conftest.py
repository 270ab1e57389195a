"""The fixtures of the rooms that services are tested through."""

from tests.admin.conftest import api
from tests.cli.conftest import remote
from tests.support.plane import plane

__all__ = ["api", "plane", "remote"]
