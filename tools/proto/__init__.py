"""Generators of what is checked in under ``xds/proto``: the wire modules, the descriptor set and the options."""
