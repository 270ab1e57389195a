"""The command line: the commands, and what they and those of features share."""
