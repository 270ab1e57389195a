"""The command line; `serve` is the composition root, the only place that joins server and api."""
