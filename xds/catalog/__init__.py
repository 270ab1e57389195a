"""What exists: config entries, read and checked. Pure."""
