"""Identifiers that both ends of the protocol share.

They are distinct types to the type checker and plain values at run time, so they travel as JSON
without conversion.
"""

from typing import Final, NewType

NodeId = NewType("NodeId", str)
"""Name of a node, unique in the cluster, for instance ``n3``."""

TaskId = NewType("TaskId", str)
"""Name of a training task, unique in the cluster, for instance ``gpt-a``."""

Generation = NewType("Generation", int)
"""Number of a task's regroup. Only the controller increases it; older generations are refused."""

AgentId = NewType("AgentId", str)
"""One run of a node agent. A restarted agent on the same node has another ``AgentId``."""

NO_GENERATION: Final = Generation(0)
"""The generation of a task that was never started."""
