"""``unicron drill``: runs drills and compares each diagnosis with the expected one.

Begin with ``drill_runs``, which runs the drills in order. ``row`` compares; ``matrix_table``
prints.
"""
