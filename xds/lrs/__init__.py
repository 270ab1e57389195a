"""Load reports (LRS): report streams, the counting of reports, and the figures of a fleet's load. Pure."""
