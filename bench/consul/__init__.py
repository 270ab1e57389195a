"""Consul's own compiler of discovery chains, for comparison: built from its public module (MPL-2.0), never shipped."""
