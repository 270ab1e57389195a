"""Config entries, chains and lowering as values. Pure."""
