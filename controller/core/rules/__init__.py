"""Judgements over plain values: values in, verdict out, no state and no turn.

Begin with ``diagnosis`` (evidence to a named fault) and ``actions`` (what is done about it).
"""
