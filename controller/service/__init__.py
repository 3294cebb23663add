"""``unicron run``: the controller of a cluster file as a service, in the foreground.

Begin with ``run_cli``, which checks the command line; ``down_cli`` ends a cluster.
``cluster_service`` serves the controller until it is stopped. ``progress_bars`` prints events, also
for the demo.
"""
