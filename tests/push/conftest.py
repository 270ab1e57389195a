"""The fixture of the rooms that these tests go through."""

from tests.support.plane import plane

__all__ = ["plane"]
