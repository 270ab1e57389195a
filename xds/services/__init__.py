"""The catalog of services: their instances from all sources, and the assignments that follow services."""
