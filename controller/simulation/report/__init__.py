"""The results of a simulation: as text, JSON and one HTML page."""
