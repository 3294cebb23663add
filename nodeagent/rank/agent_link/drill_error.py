"""The exception of a drill, in ranks of ours and in attached programs alike. It needs no torch."""


class DrillError(Exception):
    """Raised on an operator's request, to rehearse an exception in a rank."""
