"""Prometheus metrics: counters of the hot path, and collectors that read the state of other objects at each scrape."""
