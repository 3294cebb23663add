"""Results of a comparison: the files, the tables, and the plot.

Begin with ``results_file``.
"""
