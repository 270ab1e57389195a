"""The routes of config entries, chains and upstreams, and Consul's paths for them."""
