"""Killing ranks of a real cluster at random, and the recoveries that its event log records.

Begin with ``commit_recovery``.
"""
