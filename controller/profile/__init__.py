"""``unicron profile``: estimates, measures, checks, shows and merges the throughput of models.

Begin with ``profile_cli``; every command has a module of its own.
"""
