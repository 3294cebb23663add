"""What the core remembers. Begin with ``cluster``, then ``task``.

A record's fields are assigned by its own methods alone. Rooms of the core call them, one event at a
time; ``phases`` says which changes of state are possible.

``cluster``       the whole: nodes, tasks, and what is remembered of all of them.
``node``          a node: contact, evidence about its loss, findings, service.
``upkeep``        what operators have ordered for it.
``node_index``    which nodes are in which condition.
``task``          a task and its present generation.
``task_records``  a task's place, phase and processes.
``task_history``  what it has been through: progress, transitions, faults, limits.
``task_orders``   what operators have ordered for it.
``watch``         what its generation was last seen to do.
``rank``          one rank, or a spare.
``incident``      one fault from its first trace to its cure.
``plan``          a division of the workers, and its decision.
``measurement``   a task's speed at several sizes.
``phases``        the states of nodes, tasks, incidents and plans, and what may follow what.
``invariants``    what must hold after every event.
``turn``          one event being handled.
"""
