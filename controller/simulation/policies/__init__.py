"""The policies: Unicron's core and the baselines, run on the same faults. Begin with ``comparison``."""
