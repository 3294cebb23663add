"""Operators' requests to a running controller from the command line. Begin with ``operate_cli``."""
