"""The modelled cluster that the core drives, under a virtual clock.

Begin with ``modelled_cluster``. ``event_sequence`` draws the faults; ``worker_time`` accounts for
every worker.
"""
