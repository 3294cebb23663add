"""The agent's sessions: with the controller, and with commands on its own node.

Begin with ``controller_session``.
"""
