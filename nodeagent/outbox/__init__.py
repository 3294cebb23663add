"""Reports that wait until the controller has acknowledged them. Begin with ``contents``."""
