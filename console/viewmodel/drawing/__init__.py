"""Text, numbers, signs and tables as toned lines. Begin with ``text``."""
