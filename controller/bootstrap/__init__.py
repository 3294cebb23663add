"""``unicron bootstrap``: puts the agent on nodes and starts it, or takes it away.

Begin with ``bootstrap_cli``. ``fleet_steps`` does the steps on all nodes at once, and
``node_facts`` asks what a node has.
"""
