"""One iteration in phases: accumulate, reduce, finalise, vote, step, commit. Begin with ``iteration_phases``."""
