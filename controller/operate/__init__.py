"""Commands to a running controller from the command line."""
