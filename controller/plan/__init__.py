"""``unicron plan``: the planner at the command line, without a cluster."""
