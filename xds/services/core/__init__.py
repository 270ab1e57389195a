"""Services with their instances by source, registrations, and instances as endpoints. Pure."""
