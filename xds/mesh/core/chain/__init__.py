"""The compiler of discovery chains from config entries. Pure."""
