"""From a parked generation to the next one. Begin with ``generations``."""
