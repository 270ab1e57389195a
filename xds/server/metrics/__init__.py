"""Prometheus metrics: counters that the hot path writes, and collectors that read the state of other parts."""
