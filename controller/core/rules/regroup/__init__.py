"""How a task's next generation takes up training. Begin with ``next_generation``."""
