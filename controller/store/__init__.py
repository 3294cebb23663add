"""The files of a run, all in the directory of its journal. Begin with ``journal``.

``journal``           every event, written before the core handles it.
``journal_lines``     events as lines; ``segments`` the journal's files.
``snapshots``         the state after an event; ``state_codec`` as JSON.
``compaction``        makes snapshots, compresses segments, deletes old ones: a process of its own.
``run_lock``          the lock of the directory: one controller writes there.
``replay``            the journal through the core: the state that the next controller takes over.
``run_file``          nodes, tasks and policy that the journal was written for.
``rendezvous_files``  the calls that filled the rendezvous tables, for the next controller.
``measured_tables``   the measured throughput of tasks.
``history``           what a run has been through, for people.
``event_log``         every announcement, for people and for checks.
``line_files``        files of lines that survive a kill of their writer.
"""
