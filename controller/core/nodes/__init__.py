"""Nodes: in contact, out of contact, lost. Begin with ``contact``."""
