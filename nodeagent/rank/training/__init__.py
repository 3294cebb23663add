"""The training of a rank over all generations of its process. Begin with ``train``."""
