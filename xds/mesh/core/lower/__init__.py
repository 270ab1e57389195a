"""Upstreams and their chains written as xDS resources. Pure."""
