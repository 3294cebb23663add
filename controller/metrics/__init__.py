"""Metrics of a controller for Prometheus. Begin with ``metric_names``, which has all of them.

``view_metrics`` makes gauges of the view of the cluster, ``run_counters`` counts what happens while
this controller runs, and ``metrics_server`` serves both at ``/metrics``.
"""
