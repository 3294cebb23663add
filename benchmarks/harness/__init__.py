"""Shared by all benchmarks: result files, pages of the documentation, and the end by SIGTERM.

Begin with ``result_pages``: every benchmark writes its results and its section through it.
"""
