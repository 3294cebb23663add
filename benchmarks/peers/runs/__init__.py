"""One run of a training: its workload and faults, its records, and the figures made from them.

Begin with ``workload_plan``: every process of a run reads it. ``peer_run`` runs it.
``peer_rank_records`` and ``event_log_records`` read the records of the run, and ``run_figures``
computes the figures.
"""
