"""What the admin API answers, one class a thing. The server sends it, and `xds.client` returns it."""
