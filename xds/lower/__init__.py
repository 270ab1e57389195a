"""Decisions written into xDS resources. Pure."""
