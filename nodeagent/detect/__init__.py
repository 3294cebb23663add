"""What readings of a node's probes mean: readings and the time in, findings out.

The functions are pure. Begin with ``lasting_conditions``, which the detectors of GPUs, links,
disks and memory use.
"""
