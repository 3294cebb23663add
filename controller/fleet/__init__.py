"""The edge to the nodes: SSH connections, agents and commands. Begin with ``node_links``.

``node_links``         all nodes: the port ``Fleet`` of the runtime.
``node_link``          one node: connect, open a session with the agent, retry.
``bootstrap``          copies the agent to a node and starts it; ``bundle`` holds its files.
``report_age``         how old a report is when it comes.
``node_connection``    SSH logins; ``login_keys`` and ``host_keys`` say with which keys.
``node_commands``      commands on a node over SSH.
``workdir_copy``       copies a task's folder to a node.
``agent_end``          ends the agent of a node, with its ranks.
``open_commands``      commands without an answer yet, and the events that end them.
``rendezvous_tables``  the key-value tables in which the ranks of a generation find each other.
``address``            how a node is reached; ``errors``, why it is not.
"""
