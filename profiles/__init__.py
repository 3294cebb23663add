"""Data about tasks, models, faults and drills; the packages above read it.

Begin with ``task_profiles``: the tasks of a cluster. ``throughput`` and ``table_file`` hold T(t,
x), ``estimate`` computes it, ``faults`` is the catalogue of faults, ``drills`` the catalogue of
drills.
"""
