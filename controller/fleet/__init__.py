"""The edge to the nodes: SSH connections, agents and commands. Begin with ``node_links``.

``node_links``         all nodes: the port ``Fleet`` of the runtime.
``node_link``          one node: connect, open a session with the agent, retry.
``bootstrap``          copies the agent to a node and starts it; ``bundle`` holds its files.
``open_commands``      commands without an answer yet, and the events that end them.
``rendezvous_tables``  the key-value tables in which the ranks of a generation find each other.
``address``            how a node is reached; ``errors``, why it is not.
"""
