"""The fit of the throughput estimate's constants to published measurements.

Begin with ``constants_fit``.
"""
