"""The settings of a server: file, environment and options, each section with its checks and errors."""
