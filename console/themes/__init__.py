"""Colours of the console: the only place where a tone becomes a terminal style."""
