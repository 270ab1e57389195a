"""How many single mistakes in accepted configurations Envoy refuses and this server takes."""
