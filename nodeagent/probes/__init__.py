"""Where observations come from: this node's processes, and its neighbours.

Begin with ``kernel_log``.
"""
