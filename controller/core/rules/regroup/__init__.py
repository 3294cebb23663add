"""Regroup: how the next generation of a task continues from the positions of its parked ranks.

``recovery`` calls this room once all ranks are parked or known to be lost. Read in this order:

``parked``            the input: a parked generation and its surviving ranks.
``next_generation``   ``decide``, the entry: from where the state comes, and what is computed again.
``partial_results``   which gradients of the interrupted iteration can be kept.
``complete_copies``   in-memory checkpoints that together make a whole state.
``copy_holders``      which rank holds the in-memory checkpoint of which other rank.
``replicas``          which replicas a set of ranks can form.
"""
