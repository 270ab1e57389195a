"""From what was decided to the resources that say so. Pure."""
