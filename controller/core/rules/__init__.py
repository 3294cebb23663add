"""Judgements over plain values: values in, verdict out. They know neither state nor turn.

Begin with ``diagnosis`` (from evidence to a named fault) and ``actions`` (the cure of a fault).

``evidence``, ``diagnosis``, ``actions``   a fault: its evidence, its name, its cure.
``failed_start``                           starts that fail alike.
``hang``, ``collectives``                  which rank of a stalled task is the culprit.
``pace``, ``stragglers``, ``spikes``       late iterations, slow ranks, diverging losses.
``loss_scale``                             a loss that follows the number of replicas.
``node_loss``                              whether an unreachable node is lost.
``transitions``                            how long a task needs to change its generation.
``planner/``                               how many workers each task gets.
``placement``, ``packing/``                which workers its ranks get.
``regroup/``                               how the next generation continues.
``policy``, ``approval``                   the time limits and approvals that operators can set.
"""
