"""The copy of a shared database on the disk of a server (docs/replicas.md): an ordinary store file.

A server whose database does not answer when it starts serves from it. The copy has the heads of all groups and all
documents; of the history only what the removal logs need.
"""
