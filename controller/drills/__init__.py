"""Drills on a local cluster: reading them, requesting them when due, and carrying them out.

Begin with ``drill_execution``. The catalogue of drills is in ``profiles.drills``.
"""
