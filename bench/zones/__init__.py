"""A simulated fleet in zones, for ``bench.assignment``."""
