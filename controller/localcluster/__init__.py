"""Nodes on this machine, each behind an SSH server on a loopback port. Begin with ``local_cluster``."""
