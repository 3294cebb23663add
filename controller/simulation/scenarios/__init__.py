"""What is simulated: cluster, tasks, faults and durations. Begin with ``scenario``."""
