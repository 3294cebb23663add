"""The error of an input that can't be read."""


class InputError(Exception):
    """An input can't be read. The text is one line with the input, the place and the mend."""
