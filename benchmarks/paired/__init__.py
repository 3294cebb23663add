"""Two ways to run the same iteration, measured against each other on real ranks.

Both are built in the same processes and take turns in blocks of iterations, so that cores, clock
rate, memory and whatever else the machine does meet both alike. Starting the processes anew, a
round, draws anew what stays the same for the life of a process, for instance where its memory lies.

Begin with ``rounds``.
"""

import warnings

# Megatron warns once per optional package that is not installed, when it is imported.
warnings.simplefilter("ignore", UserWarning)
