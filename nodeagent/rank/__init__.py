"""The training processes of a node: the template, its forked ranks, their training.

The rooms, from the outside in: ``process`` (a rank's process), ``training`` (its loop over all
generations), ``iteration`` (one iteration in phases), ``program`` (the model and data of the task),
``state`` and ``checkpoint`` (what is kept of them), ``groups`` (process groups), ``agent_link``
(connections to the agent) and ``tensors``. Begin with ``process.rank_main``.
"""
