"""What our loop needs of Megatron's data-parallel wrapper, around parameters without a model."""

from types import SimpleNamespace
from typing import Any

Lazy = Any
"""Something of torch or of ours, imported when a test runs: collecting tests stays fast."""


def chunk_of(torch: Lazy, *sums: float) -> Lazy:
    """Return what ``Reduction`` needs of Megatron's wrapper: one bucket per parameter."""
    module = torch.nn.Module()
    for number in range(len(sums)):
        module.register_parameter(f"weight{number}", torch.nn.Parameter(torch.zeros(2)))
    buckets = [
        SimpleNamespace(params_list=[parameter], grad_data=torch.full((2,), each))
        for parameter, each in zip(module.parameters(), sums, strict=True)
    ]
    return SimpleNamespace(
        module=module,
        bucket_groups=[SimpleNamespace(buckets=buckets)],
        expert_parallel_bucket_groups=[],
        param_to_bucket_group={},
    )
