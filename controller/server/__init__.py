"""The controller as a running service. Begin with ``controller``."""
