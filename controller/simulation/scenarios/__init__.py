"""Scenarios, the inputs of a simulation: cluster, tasks, faults and durations. Begin with ``scenario``."""
