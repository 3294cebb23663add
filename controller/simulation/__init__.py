"""The simulator: compares policies over months of faults, on a modelled cluster.

Unicron's policy is the controller's own core; the baselines are models of their own. All policies
get the same faults. Begin with ``policies.comparison``. ``scenarios`` has the inputs, ``world`` the
modelled cluster, and ``report`` the output.
"""
