"""The policies: Unicron's core and the baselines, on the same faults. Begin with ``comparison``."""
