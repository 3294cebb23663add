"""A task's throughput at several sizes, on idle workers. Begin with ``sizes``."""
