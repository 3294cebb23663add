"""Plans: proposed for an event, decided, carried out. Begin with ``plans``."""
