"""A cluster of SSH nodes on this machine, for the demo and the tests.

Begin with ``local_cluster``, which starts, breaks and restores nodes. A warden process owns all
node processes and removes everything at the end: see ``warden``, and ``host`` for one node.
"""
