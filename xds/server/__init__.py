"""asyncio and grpcio shells around the engine."""
