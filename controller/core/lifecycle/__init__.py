"""Start, park and stop the ranks of a task. Begin with ``start_stop``."""
