"""Services with their instances, and config entries: reading, checking and writing them. Pure."""
