"""Pushes to fleets of real Envoys under load, through our server and through go-control-plane side by side.

What is measured, and how, is said in `bench.envoys.section`; ``python -m bench.envoys --help`` says how to run it.
"""
