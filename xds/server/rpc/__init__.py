"""A gRPC server on asyncio over `xds.http2`: what grpc.aio's server does, for handlers made by grpc's own functions."""
