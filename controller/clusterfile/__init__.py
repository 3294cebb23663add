"""The cluster file: one TOML file that says which machines train which tasks, and how.

Begin with ``cluster_reader``, which reads a file and its includes; all mistakes come back at once.

``cluster_keys``      the keys of each section, with their meanings.
``section_reading``   from a section's table to its class.
``node_collection``   the nodes of all files; ``node_groups`` makes them.
``hostlist``          many names in one short text.
``ssh_config``        how a host is reached, by the file's keys and OpenSSH's configuration.
``task_collection``   the tasks and the policy of all files; a file of tasks alone.
``controller_choice``  which controller a command asks; ``file_places`` where its files are;
``remote_cluster``    reaches one over SSH.
``toml_document``     a TOML file with the line of each key.
``file_mistakes``     mistakes, each with file, line and mend.
``published_schema``  the JSON schema that editors use.
"""
