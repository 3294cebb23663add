"""The controller as a running service, with its API and files. Begin with ``controller_server``.

``controller_server``  composes everything, starts and stops it: one server per run.
``server_hooks``       extensions by the owner of a server: observers, drills, the end of the run.
``controller_config``  nodes, tasks and policy of a controller.
``cluster_config``     the same from a cluster file.
``controller``         core, journal, runtime and fleet: one controller, which another may follow.
``runtime``            feeds events to the core and carries out its instructions.
``event_queue``        the events that wait for the core: faults first.
``history_writer``     iterations, incidents, plans and announcements, for people.
``compactor``          has closed segments of the journal compacted.
``rank_launches``      the launch of each rank, from instruction and program.
``announcements``      publishes announcements; ``api_commands`` takes the clients' commands.
``precomputed_plans``  plans for next events and explanations of plans, in the background.
"""
