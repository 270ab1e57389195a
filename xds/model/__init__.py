"""The nouns: values that every other package speaks in. Pure."""
