"""The training of one rank, over all generations of its process. Begin with ``training_loop``.

``loop_building`` makes the loop, ``resume`` continues it after a fault, and ``saved_state`` makes
checkpoints on disk and in memory.
"""
