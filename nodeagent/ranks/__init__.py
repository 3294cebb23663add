"""The rank processes of a node: started, watched, inspected, ended.

Begin with ``rank_processes``.
"""
