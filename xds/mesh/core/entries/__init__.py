"""Config entries: reading, checking and writing them. Pure."""
