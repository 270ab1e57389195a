"""Config entries to compiled discovery chains. Pure."""
