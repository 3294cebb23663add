"""The edge to the nodes: SSH connections, the bootstrap of agents, and sessions with them."""
