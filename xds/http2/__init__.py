"""HTTP/2 and gRPC's framing without I/O: the server's half of one connection (RFC 9113, RFC 7541, gRPC over HTTP/2)."""
