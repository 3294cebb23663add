"""``unicron demo``: a local cluster, two real training tasks, a controller, and drills.

Begin with ``demo_cli``, which starts and ends everything; ``demo_options`` checks the command line.
"""
