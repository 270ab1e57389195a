"""The commands of services, sources, registrations and bindings."""
