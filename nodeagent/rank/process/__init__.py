"""A rank's process: forked or started cold, from its first instruction to its exit. Begin with ``rank_main``."""
