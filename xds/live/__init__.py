"""Live assignments: their owners, those set by hand, and draining endpoints."""
