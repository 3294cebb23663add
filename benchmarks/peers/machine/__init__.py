"""The machine of a run: its virtual environment, its processes, and the nodes that are lost.

Begin with ``peer_nodes``: it says what a node is, and how a node is lost.
"""
