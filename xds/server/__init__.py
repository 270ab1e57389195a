"""The servers: gRPC for xDS clients, the HTTP port, metrics and logs. All tasks, sockets and clocks are here."""
