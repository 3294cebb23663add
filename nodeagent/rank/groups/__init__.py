"""Process groups: formed, ended, and rebound to a model. Begin with ``parallel_groups``."""
