"""What a detail screen shows of one task, node, incident or plan. Begin with ``detail``."""
