"""The node's own health: probes at their intervals. Begin with ``node_probes``."""
