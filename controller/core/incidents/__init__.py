"""From evidence to a cured fault. Begin with ``evidence_intake``, then ``cures``.

What cures a fault is decided in ``rules.actions``.

``evidence_intake``  evidence about one fault, gathered in one incident.
``node_findings``    findings of a node's probes, joined with the faults of its tasks.
``cures``            the moment at which the cause is named, and the start of its cure.
``fault_cases``      what the choice of a cure depends on.
``rehearsed_cures``  in a rehearsal a cure is recorded, and an operator is asked first.
``naming``           the cause, written into the incident and announced.
``failed_starts``    starts that fail before an iteration: when they are named, and where to start.
``holding``          tasks that are handed to the operator, and their further tries.
``isolation``        a node or a GPU that is taken out, and its tasks.
``resolution``       how training resumed, and when an incident is over.
``incident_log``     an incident is opened, and gets more evidence.
"""
