"""Start, park and stop the ranks of a task. Begin with ``start_stop``.

``start_stop``        starts a waiting task, stops ranks, and notes lost ranks.
``generation_start``  begins the next generation of a task.
``parking``           sends the halt, and counts parked ranks.
``obstacles``         why a task can't be at its target yet.
``spares``            processes that build their models before their task moves.
``progress``          committed iterations, with speed and loss.
``command_tasks``     when the ranks of a command task count as running.
"""
