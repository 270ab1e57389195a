"""What the groups serve, and everything that is computed from it once for all streams."""
