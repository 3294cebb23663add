"""From evidence to a cured fault. Begin with ``evidence_intake``, then ``naming`` and ``cures``."""
