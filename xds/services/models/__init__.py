"""The JSON of services and registrations."""
