"""Ways to handle failures, run on the same faults. Begin with ``comparison``."""
