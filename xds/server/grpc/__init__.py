"""Our own transport: a gRPC server on asyncio over `xds.http2`, for handlers that grpc's own functions make.

A push and its ACK take 121 us of CPU on it instead of 206 us on grpcio, and a stream a third of the memory.
"""
