"""Flow control of the server: all queues of the event loop and their limits. See docs/internals/flow.md."""
