"""Process groups: made, ended at a halt, and put into a model of an earlier generation.

Begin with ``parallel_groups``. ``halting`` says how a rank that is blocked in a collective is
woken, ``nccl`` the same for GPUs. ``device_shim`` prepares the device.
"""
