"""Micro-batches as tensors: windows of the training text, byte by byte.

``profiles.corpus`` chooses the bytes of a micro-batch from (seed, iteration, index). No state is
kept between micro-batches, so any rank can make any micro-batch at any time.
"""

from typing import NamedTuple

import torch

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.corpus import load_corpus, sample_offset


class MicroBatch(NamedTuple):
    """Samples of one forward pass; all tensors are int64 of [micro_batch_size, seq_length]."""

    tokens: torch.Tensor
    position_ids: torch.Tensor
    labels: torch.Tensor


class MicroBatches:
    """Random access to every micro-batch of a task.

    Raises:
        DataError: On construction, if the text is missing or too short for one sample.
    """

    def __init__(self, training: TrainingSpec, device: torch.device) -> None:
        self._training = training
        self._device = device
        self._seq_length = training.model.seq_length
        corpus = load_corpus(
            training.data_path,
            seq_length=self._seq_length,
            vocab_size=training.model.vocab_size,
        )
        self._num_offsets = len(corpus) - self._seq_length
        self._text = torch.frombuffer(bytearray(corpus), dtype=torch.uint8)
        self._position_ids = torch.arange(self._seq_length).expand(training.micro_batch_size, -1)

    def get(self, iteration: int, index: int) -> MicroBatch:
        """Return micro-batch ``index`` of the global batch of ``iteration``."""
        windows = [
            self._window(iteration, index, i) for i in range(self._training.micro_batch_size)
        ]
        text = torch.stack(windows).long()
        parts = (text[:, :-1], self._position_ids, text[:, 1:])
        return MicroBatch(*(part.contiguous().to(self._device) for part in parts))

    def _window(self, iteration: int, index: int, sample: int) -> torch.Tensor:
        begin = sample_offset(
            self._num_offsets,
            seed=self._training.seed,
            iteration=iteration,
            micro_batch=index,
            sample=sample,
        )
        return self._text[begin : begin + self._seq_length + 1]
