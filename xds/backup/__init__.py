"""Backups of all that a server holds, restores, and copies of what a data directory has undamaged."""
