"""Checkpoints on disk: written during training, complete or absent, readable by any layout.

Begin with ``task_checkpoints``.

To save a checkpoint, every rank copies its own blocks of the whole model into host memory at an
iteration boundary (``snapshot``). Only that blocks training. A thread per rank (``saving``) writes
the copy with ``torch.distributed.checkpoint``, then a small file that lists the blocks: its *part*.
When the parts of all ranks are there, the thread of global rank 0 adds the manifest and renames the
directory. No collective is needed, so the death of a rank leaves only a half-written directory.

To load one, global rank 0 looks for candidates, and all ranks load the same one (``loading``). A
damaged candidate is renamed and never loaded again. Megatron's ``sharded_state_dict`` maps a rank's
tensors to the whole model (``whole_model``). So any tp, pp and dp can read a checkpoint.

On disk, under the task's ``checkpoint_dir``::

    iter_0000010/                  complete: files of torch.distributed.checkpoint, and
        manifest.json                  its contents (``manifest``), with a checksum file
    iter_0000015.g3.tmp/           being written by generation 3, or left over from it
    iter_0000005.bad-checksum/     quarantined, for a person to look at
    .run-0123456789abcdef          by which ranks see that they share the directory
    losses.jsonl                   losses of the newest iterations, for comparison after a load
"""

from nodeagent.rank.checkpoint.manifest import CheckpointError
from nodeagent.rank.checkpoint.saving import MissedCheckpoint, SavedCheckpoint
from nodeagent.rank.checkpoint.task_checkpoints import Checkpoints

__all__ = ["CheckpointError", "Checkpoints", "MissedCheckpoint", "SavedCheckpoint"]
