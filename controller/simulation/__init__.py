"""What a policy makes of faults, over months, in seconds: a modelled cluster under a virtual clock.

Unicron's policy is the controller's own core; baselines are models of their own. All of them meet
the same faults.
"""
