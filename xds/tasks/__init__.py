"""Threads, tasks, locks and waits of the event loop."""
