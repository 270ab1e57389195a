"""The routes of the admin API, one module per kind of object."""
