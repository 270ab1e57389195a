"""How many single mistakes in accepted configurations Envoy rejects and this server accepts."""
