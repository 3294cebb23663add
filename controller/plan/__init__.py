"""``unicron plan``: asks the planner, for a problem file or a cluster after a change.

Begin with ``plan_cli``. ``cluster_what_if`` asks a controller or a saved run; ``questions`` answers
inside the controller.
"""
