"""What runs on a node: the agent, and in ``rank`` the processes that train.

Begin with ``agent``.
"""
