"""Publishing, group resolution, bootstrap and settings: everything between the ports and the engine."""
