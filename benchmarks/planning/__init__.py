"""Made problems for the planner's benchmarks, and the run over all of them.

Begin with ``planner_instances``: it makes the problems. ``instance_campaign`` measures each problem
in a process of its own.
"""
