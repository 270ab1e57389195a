"""What the features share of Consul: its quantities, the shape of its documents, the form of its answers."""
