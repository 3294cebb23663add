"""Modal dialogs: each asks one thing and returns one value."""
