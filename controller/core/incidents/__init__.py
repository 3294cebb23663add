"""From evidence to a cured fault. Begin with ``evidence_intake``, then ``naming`` and ``cures``.

``evidence_intake``  evidence about one fault, gathered in one incident.
``node_findings``    findings of a node's probes, joined with the faults of its tasks.
``naming``           the name of the fault, counted against its node.
``cures``            the moment at which the cause is named, and the start of its cure.
``failed_starts``    starts that fail before an iteration, tried on a second node.
``isolation``        a node or a GPU that is taken out, and its tasks.
``resolution``       how training resumed, and when an incident is over.
``incident_log``     the states of an incident, from detected to resolved.
"""
