"""Generators of what is checked in under ``xds/proto``: wire modules (of Linkerd's API too), descriptors, options."""
