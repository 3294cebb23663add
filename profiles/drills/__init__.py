"""Drills: what can be broken on purpose, how that is staged, and what should be seen of it. Pure data."""
