"""Operators' commands to a running controller, without a console.

Begin with ``asking``, which has what all of them share. ``showing`` prints a part of the cluster
once or again and again. The other modules are one command each, or a few that belong together.
"""
