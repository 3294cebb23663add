"""A rank's connection to its node's agent, and what it reports over it. Begin with ``link``."""
