"""Checks on the repository itself: names, module sizes, references. `make check` runs them."""
