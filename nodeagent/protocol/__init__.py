"""The vocabulary that controller, agents and ranks share, and its codec. Begin with ``messages``.

``messages``          between controller and agent, inside the SSH connection.
``local``             between agent and template, and between agent and rank.
``bridging``          where a session over a command begins.
``codec``             messages to bytes and back, one JSON object per line.
``ids``               identifiers of nodes, tasks and generations.
``observations``      facts that an agent reports.
``findings``          what the probes of a node report.
``orders``            halt, stop and inspect: orders about one generation.
``rank_launch``       the launch of one rank.
``rank_status``       the state of a rank's process.
``regroup``           positions of parked ranks, and the resume after them.
``rendezvous``        calls on a task's rendezvous store.
``reported_numbers``  durations and counts, without what can be none.
``standing``          where a rank's training thread is.
``rank_faults``       faults that a drill stages in a rank.
"""
