"""``unicron plan``: asks the planner, for a problem in a file or for a cluster after a supposed change.

Begin with ``plan_cli``. ``cluster_what_if`` asks a controller or a saved run; ``questions`` answers inside
the controller.
"""
