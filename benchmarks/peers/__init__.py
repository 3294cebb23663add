"""Recovery benchmark: one training, several ways to survive a fault, measured alike.

Begin with ``runs.workload_plan``: what is trained, and when it breaks. ``contenders`` are the
programs under comparison, ``training`` is the training of the alternatives, ``machine`` has nodes
and processes, ``campaign_rounds`` runs everything, ``tables`` reports it. All rooms but
``training``, and the plot, need nothing but Python.
"""
