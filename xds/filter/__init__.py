"""The filter language: a text such as ``node.metadata.role == edge`` becomes a predicate. Pure."""
