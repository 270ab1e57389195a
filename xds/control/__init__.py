"""Publishing, group resolution, bootstrap and settings: everything between the doors and the engine."""
