"""Load reports (LRS): the engine of a report stream, counting, and the figures of a fleet's load. Pure."""
