"""Checkpoints on disk: written beside training, complete or not there, and fit for any layout.

How a checkpoint comes to be. At an iteration boundary every rank copies its own blocks of the whole
model into host memory (``snapshot``, the only part that blocks training) and goes on. A thread per
rank (``saving``) writes the copy with ``torch.distributed.checkpoint`` and then a small file that
says what it wrote, its *part*. When the parts of all ranks are there, the thread of global rank 0
adds the manifest and renames the directory. No collective is needed, so the death of a rank leaves
a half-written directory behind and nothing else.

How it is loaded. Global rank 0 looks for candidates and all ranks take the same one (``loading``).
What is damaged is renamed and never a candidate again. What a rank's tensors are in the whole model
comes from Megatron's ``sharded_state_dict`` (``whole``), so any tp, pp and dp reads what any other
has written.

On disk, under the task's ``checkpoint_dir``::

    iter_0000010/                  complete: files of torch.distributed.checkpoint, and
        manifest.json                  what is in it (``manifest``), and its checksum beside it
    iter_0000015.g3.tmp/           being written by generation 3, or left over from it
    iter_0000005.bad-checksum/     quarantined, for a person to look at
    losses.jsonl                   losses of the newest iterations, to compare with after a load
"""

from nodeagent.rank.checkpoint.manifest import CheckpointError
from nodeagent.rank.checkpoint.saving import MissedCheckpoint, SavedCheckpoint
from nodeagent.rank.checkpoint.task_checkpoints import Checkpoints

__all__ = ["CheckpointError", "Checkpoints", "MissedCheckpoint", "SavedCheckpoint"]
