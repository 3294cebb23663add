"""The only place where a tone becomes a terminal style. Begin with ``colours``."""
