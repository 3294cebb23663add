"""The training program: loaded, checked, and the built-in GPT. Begin with ``loop``."""
