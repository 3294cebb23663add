"""Drills: faults that are staged on purpose, and the expected outcome of each. Pure data.

Begin with ``drill`` (the parts of a drill), then ``drill_catalogue`` (all drills). The texts of
exceptions and kernel messages are in ``data``.
"""
