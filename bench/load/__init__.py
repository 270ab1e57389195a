"""The load generator: raw HTTP/2 clients of xDS in worker processes."""
