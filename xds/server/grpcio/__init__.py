"""grpcio as the transport, the alternative to `xds.server.grpc`. All that is particular to it is in this package."""
