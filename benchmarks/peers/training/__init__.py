"""The training that the alternatives protect: runs in ranks, imports torch and Megatron.

Begin with ``checkpointed_loop``.
"""
