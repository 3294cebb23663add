"""T(t, x) from first principles: training speed of a model in a layout, and the best layout.

Begin with ``prediction``: a description of a training, and its estimated throughput. ``layer`` has
the time of one layer, ``iteration_time`` that of an iteration, ``layout_search`` the best layout.
"""
