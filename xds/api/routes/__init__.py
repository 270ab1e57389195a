"""The routes of the admin API, a module per kind of thing that they present."""
