"""``unicron demo``: a local cluster, two real training tasks, a controller, and drills.

Begin with ``demo_cli``, which starts and ends everything. ``demo_arguments`` defines the command
line and ``demo_options`` checks it. ``playground`` is the nodes alone.
"""
