"""Tasks that stall, get slow or diverge. Begin with ``stalls``."""
