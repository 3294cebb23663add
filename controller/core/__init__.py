"""The pure core: events in, instructions out, time as an argument.

An event passes the rooms in this order. Begin with ``machine``.

``machine``             the one entry: ``Machine.handle(event) -> instructions``.
``sweeps``              the table of passes over the state after every event.
``quiet_events``        events after which the sweeps have nothing to do.
``events``              the core's input.
``instructions``        the core's output.
``specs``               what operators say about a node and a task.
``timers``              timers that the core sets; each comes back as an event.
``fired_timers``        what follows from a timer that has run out.
``state``               what the core remembers, and the ``Turn`` that one event is handled in.
``observation_intake``  what agents report, taken into the state.
``heartbeats``          what heartbeats show that the core has to know.
``nodes``               contact with nodes: gained, lost and judged.
``monitoring``          tasks that stall, get slow or diverge.
``incidents``           evidence, the named cause, and the cure.
``lifecycle``           start, park and stop the ranks of a task.
``recovery``            from a parked generation to the next one.
``planning``            the division of workers over tasks: proposed, decided, carried out.
``measuring``           a task's throughput at several sizes, on idle workers.
``requests``            what operators ask for.
``membership``          nodes and tasks that join, change and leave; a changed policy.
``rules``               pure judgements over values. They know neither state nor turn.
``rehearsal``           the plan that would be made if something were different.
``outlook``             the plans that may be needed next.
``cluster_spec``        the nodes, tasks and policy that a machine is made of.
``succession``          how a machine takes over from another one.
"""
