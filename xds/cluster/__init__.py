"""Several servers that share one store: which there are, and which of them does the work that only one may do."""
