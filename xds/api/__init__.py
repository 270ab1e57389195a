"""The admin API over HTTP: ``create_app`` in `xds.api.app` makes the application."""
