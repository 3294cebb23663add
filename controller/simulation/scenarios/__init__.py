"""Inputs of a simulation: cluster, tasks, faults and durations. Begin with ``scenario``."""
