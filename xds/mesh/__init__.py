"""Config entries, their discovery chains, upstreams lowered to resources, and Consul's paths for them."""
