"""Start, park and stop the ranks of a task. Begin with ``start_stop``.

``start_stop``        starts a waiting task, stops ranks, and notes lost ranks.
``generation_start``  begins the next generation of a task, and changes what the task is.
``cluster_members``   the nodes and tasks that there are.
``parking``           sends the halt, and counts parked ranks.
``phase_changes``     the phase of a task; the only module that changes it.
``assignments``       the target of a task, and its place until then.
``obstacles``         why a task can't be at its target yet.
``spares``            processes that build their models before their task moves.
``leaving_ranks``     processes that are being ended, and their workers.
``rank_records``      the present state of each rank and spare.
``progress``          committed iterations, with speed and loss.
``transition_times``  how long the steps to the next generation take.
``fault_history``     recoveries of a task since its last new iteration.
``command_tasks``     when the ranks of a command task count as running.
"""
