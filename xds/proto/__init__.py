"""Our own wire schema (generated from ``wire.proto``) and the packed descriptor set of Envoy's API.

``python -m tools.proto.generate`` makes what is checked in here.
"""
