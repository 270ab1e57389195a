"""Answers of the Linkerd Destination API out of services, discovery chains and xDS resources. Pure."""
