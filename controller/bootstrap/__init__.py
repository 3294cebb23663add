"""``unicron bootstrap``: puts the agent on nodes and starts it, or takes it away.

Begin with ``bootstrap_cli``. ``fleet_steps`` does all nodes at once, ``node_steps`` the steps on
one of them, and ``node_facts`` asks what a node has.
"""
