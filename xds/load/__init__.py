"""Load reports as values: windows over them, and the assignment computed from them. Pure."""
