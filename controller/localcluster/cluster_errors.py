"""Errors of the local cluster.

LocalClusterError        the cluster can't start or continue; the text is one line for the operator
ServerError              one SSH server does not serve; another kind of server may
"""


class LocalClusterError(Exception):
    """The local cluster can't start or continue. The text is one line and says how to mend it."""


class ServerError(Exception):
    """This SSH server does not serve. The text says why, in one line."""
