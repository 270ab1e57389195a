"""HTTP/2 and gRPC framing without I/O: the server side of one connection (RFC 9113, RFC 7541, gRPC over HTTP/2)."""
