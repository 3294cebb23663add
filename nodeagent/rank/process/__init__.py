"""The process of a rank: how it is started, forked from the template, and recorded when it ends.

Begin with ``rank_main``, which a rank of ours runs from its first instruction to its exit code. A
command runs in ``command_rank``.
"""
