"""What the fleet has, folded from engine events: nodes, streams, types, NACK records. Pure."""
