"""The state of the fleet, built from engine events: nodes, streams, types, NACK records. Pure."""
