"""Who may do what: bearer tokens with scopes, the names in certificates, and the rules for principals and nodes."""
