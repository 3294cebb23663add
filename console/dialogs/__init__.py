"""Modal dialogs: each asks one question and returns one value. Begin with ``frame``."""
