"""The subcommands, one module per family: their arguments, and what they do. Importing a family registers its commands.

All of these modules are imported at every start. Code that needs the codec or the server is therefore in a module of
`xds.cli` with the name of the family, which is imported when a command runs.
"""
