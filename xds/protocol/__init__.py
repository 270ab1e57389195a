"""The sans-io engine: requests and pushes in, events out. Pure: no clock, no I/O, no tasks."""
