"""The protobuf wire format where bytes are read or written without a message class. Pure."""
