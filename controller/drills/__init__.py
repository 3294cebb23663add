"""Drills on a local cluster: asked for, scheduled, carried out. Begin with ``drill_execution``."""
