"""JSON, YAML and protobuf to canonical resources, and the checks that happen on the way."""
