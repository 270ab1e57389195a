"""An Envoy-compatible xDS management server."""

__version__ = "0.1.0"
