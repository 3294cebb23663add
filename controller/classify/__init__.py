"""``unicron classify``: names the faults in logs, by the catalogue of ``profiles.faults``."""
