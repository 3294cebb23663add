"""One iteration of training on one rank: accumulate, reduce, finalise, vote, step, commit.

Begin with ``iteration_phases``, which calls the others. ``ledger`` records how far the iteration
is.
"""
