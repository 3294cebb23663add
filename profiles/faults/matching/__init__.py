"""How lines are matched against many patterns quickly. Begin with ``rules``."""
