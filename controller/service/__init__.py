"""``unicron run``: the controller of a cluster file as a service, in the foreground.

Begin with ``run_cli``, which checks the command line. ``cluster_service`` serves the controller
until it is stopped; ``progress_bars`` prints what happens, also for the demo.
"""
