"""The admin API over HTTP: ``create_app`` in `xds.admin.app` makes the application."""
