"""Benchmarks: each module is a program, or a part of one. Its first docstring explains its options and columns."""
