"""The routes of services, sources, registrations and bindings."""
