"""Regroup: how the next generation of a task continues from the positions of its parked ranks.

What goes in: a ``Parked`` generation, which is what its ranks reported, the layout of the next one,
and the processes that continue. What comes out: one ``Resume`` for all ranks of the new generation.
What holds, whatever was reported: each micro-batch of the interrupted iteration counts once; no
rank is asked for what it did not report; all ranks begin at the same iteration.

``recovery`` calls this room once all ranks are parked or known to be lost. Read in this order:

``parked``            the input: a parked generation and its surviving ranks.
``next_generation``   ``decide``, the entry: from where the state comes, and what is computed again.
``partial_results``   which gradients of the interrupted iteration can be kept.
``complete_copies``   in-memory checkpoints that together make a whole state.
``copy_holders``      which rank holds the in-memory checkpoint of which other rank.
``replicas``          which replicas a set of ranks can form.

Rejected:

- Each rank decides for itself. Survivors disagree about whether the last collective ended.
- Gradients reduced in place. A reduction that breaks leaves neither sum.
- New processes for all ranks: a start, a model and the whole state on each of them.

docs/decisions/0007 and 0008 have the reasons in full.
"""
