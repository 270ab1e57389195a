"""Answers of the Linkerd Destination API from services, discovery chains and xDS resources. Pure."""
