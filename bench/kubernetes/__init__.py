"""A real Kubernetes API server, for tests."""
