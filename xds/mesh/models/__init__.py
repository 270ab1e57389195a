"""The JSON of config entries and upstreams."""
