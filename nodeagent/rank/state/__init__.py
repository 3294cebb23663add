"""The state of a rank, its shards, and their in-memory checkpoints. Begin with ``rank_state``."""
