"""``unicron check``: what is not ready in a cluster, before anything starts.

Begin with ``fleet_check``. The judgements are pure: ``fleet_findings`` over what nodes have, and
``host_check`` over the policy's time-outs.
"""
