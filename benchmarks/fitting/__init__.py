"""The fit of the throughput estimate's constants to published measurements: ``constants_fit``."""
