"""The project's wire schema (from ``api/proto``), and the packed descriptor set and options of Envoy's API.

``python -m tools.proto.generate`` generates what is checked in here.
"""
