"""How many groups of ranks each node gets, and who sits where: numbers alone, names are in ``placement``."""
