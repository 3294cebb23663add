"""The errors inside groups, which task groups raise."""


def leaf_errors(error: BaseException) -> list[BaseException]:
    """Return the exceptions of a group and of all groups in it."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for part in error.exceptions for leaf in leaf_errors(part)]
