"""Flow control of the server: everything that waits on the event loop, and for how long. See docs/flow.md."""
