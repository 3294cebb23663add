"""The planner: how many workers each task gets. Exact, fast, and able to explain its answer.

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

The planner knows numbers of workers only. ``controller.core.rules.placement`` decides which worker
each rank gets.
"""
