"""SSH servers in front of local nodes, and how to log in. Begin with ``ssh_server``."""
