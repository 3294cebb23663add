"""What can go wrong with the local cluster of the demo.

LocalClusterError                one clear line for the operator; the demo can't go on
ServerError              one SSH server does not serve; another kind may
"""


class LocalClusterError(Exception):
    """The demo can't start or go on. The text is one line and says what would help."""


class ServerError(Exception):
    """This SSH server does not serve; the text says why, in one line."""


def leaf_errors(error: BaseException) -> list[BaseException]:
    """Return the exceptions of a group and of the groups in it."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for part in error.exceptions for leaf in leaf_errors(part)]
