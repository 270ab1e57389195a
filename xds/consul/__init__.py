"""What the features share of Consul: quantities, the shape of documents, the form of answers, routers of its paths."""
