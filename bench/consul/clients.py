"""Consul's own clients, built from its public modules (MPL-2.0), never shipped."""

from __future__ import annotations

from pathlib import Path

from bench.peers.go_program import GoProgram

_FOLDER = Path(__file__).resolve().parent
# The Go client in a program that makes every call. With the argument ``config-entries``: those of `api.ConfigEntries`
# and `api.DiscoveryChain`; with ``services``: those of `api.Agent`, `api.Catalog` and `api.Health`.
CONSUL_CLIENT = GoProgram("consul-client", _FOLDER / "client")
# Consul's command line and agent. From nothing it takes some ten minutes to build.
CONSUL = GoProgram("consul-1.12.9", _FOLDER / "agent")
