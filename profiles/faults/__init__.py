"""The fault catalogue: what clusters print, what it means, and which line of many is the cause."""
