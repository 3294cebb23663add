"""The pure core: events in, instructions out, time as an argument.

An event passes the rooms in this order. Begin with ``machine``.

``machine``               the one entry: ``Machine.handle(event) -> instructions``.
``sweeps``                the table of passes over the state after every event.
``events``                input of the core; ``instructions``, its output; ``timers``.
``state``                 what the core remembers, and the ``Turn`` that one event is handled in.
``observation_intake``    what agents report, taken into the state.
``nodes``                 contact with nodes: gained, lost and judged.
``monitoring``            tasks that stall, get slow or diverge.
``incidents``             evidence, the named cause, and the cure.
``lifecycle``             start, park and stop the ranks of a task.
``recovery``              from a parked generation to the next one.
``planning``              the division of workers over tasks: proposed, decided, carried out.
``measuring``             a task's throughput at several sizes, on idle workers.
``requests``              what operators ask for.
``rules``                 pure judgements, values in and a verdict out. They know neither state nor
turn. ``rehearsal``, ``outlook`` what would be planned if something were different, or happened
next. ``cluster_spec``, ``succession`` what a machine is made of, and how it takes over from another
one.
"""
