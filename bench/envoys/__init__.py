"""Pushes to fleets of real Envoys under load, through our server and through go-control-plane side by side.

`bench.envoys.section` explains what is measured, and how; ``python -m bench.envoys --help`` explains how to run it.
"""
