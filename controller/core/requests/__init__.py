"""What operators ask for, each answered exactly once. Begin with ``operator_requests``."""
