"""The programs under comparison: Unicron, and the alternatives with their settings.

Begin with ``contender``: the interface of all of them. ``alternative_settings`` has the commands of
the alternatives, ``unicron_demo`` runs Unicron.
"""
