"""The modelled cluster under a virtual clock. Begin with ``modelled_cluster``."""
