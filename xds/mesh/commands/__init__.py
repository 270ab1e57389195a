"""The commands of config entries, chains and upstreams."""
