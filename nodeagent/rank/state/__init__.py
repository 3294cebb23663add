"""A rank's state, its shards and their in-memory checkpoints. Begin with ``rank_state``."""
