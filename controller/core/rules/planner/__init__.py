"""The planner: how many workers each task gets. Exact, fast, and able to explain its answer.

What goes in: a ``Problem``, which is tasks with their throughput tables, the number of workers, and
the time until the next expected fault. What comes out: a ``Division``, one size per task. What
holds: the sizes add up to the number of workers at most; each is 0 or one that the task's table
lists; no other division has a larger sum of G. Equal inputs give equal divisions, in any order of
the tasks.

The planner knows numbers of workers only. ``controller.core.rules.placement`` decides which worker
each rank gets.

Read in this order:

``cost``               the worth of a size to a task: the paper's F, WAF and G.
``solver``             ``solve``, the entry: the paper's dynamic program.
``floors``             tasks that may not be stopped while they have room.
``options``            a task's sizes, gains and changes as arrays of integers.
``search``             finds the best division without filling the whole table.
``shadow_price``       the price of a worker (Lagrange multiplier) that bounds the search.
``partial_divisions``  the recurrence itself, on arrays.
``variants``           solves many similar problems together, for ``lookup``.
``lookup``             plans that are computed before they are needed.
``ranking``            the second best division, the third best, and so on.
``explanation``        alternatives, sensitivity, and the cost of waiting.

Rejected:

- Filling the table of the recurrence: 10^10 steps for 100,000 workers in nodes of 8.
- A heuristic: as fast as the search, and nothing to test against brute force.
- Gains as floats: their sums depend on the order of the additions, so ties would too.
- One search for each event that may come next: half a minute instead of half a second.
- The explanation as a part of the decision: a plan would wait for it.

docs/decisions/0013 and 0014 have the reasons in full.
"""
