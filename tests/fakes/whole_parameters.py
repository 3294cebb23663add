"""The parameters of the whole model, from a rank or from a checkpoint on disk.

A checkpoint is read by its manifest only, without the code that loads checkpoints.
"""

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from profiles.layout import Layout

_COPY = "optimizer.state.fp32_param."

Parameters = dict[str, "np.ndarray[Any, Any]"]


def parameters_of_rank(
    module: Any,  # noqa: ANN401 - a torch module; torch is imported in the ranks only
    layout: Layout,
    *,
    num_layers: int,
    pp_rank: int,
) -> Iterator[tuple[str, int, Any]]:
    """Yield each parameter of a rank: name in the whole model, split dimension or -1, parameter."""
    first_layer = pp_rank * (num_layers // layout.pp)
    for local_name, parameter in module.named_parameters():
        # Megatron wraps a model in bfloat16 once more.
        parts = local_name.removeprefix("module.").split(".")
        if parts[:2] == ["decoder", "layers"]:
            parts[2] = str(int(parts[2]) + first_layer)
        is_split = getattr(parameter, "tensor_model_parallel", False) and layout.tp > 1
        yield ".".join(parts), parameter.partition_dim if is_split else -1, parameter


def read_parameters(directory: Path) -> Parameters:
    """Return all parameters of the checkpoint, put together from the blocks of all ranks.

    Of a model in bfloat16 these are its own and the optimizer's copies of them in float32.
    """
    import torch

    manifest = json.loads((directory / "manifest.json").read_text())
    contents = {file["name"]: (directory / file["name"]).read_bytes() for file in manifest["files"]}
    whole: Parameters = {}
    for block in manifest["blocks"]:
        is_parameter = not block["key"].startswith("optimizer.")
        if not is_parameter and not block["key"].startswith(_COPY):
            continue
        start = block["position"]
        archive = io.BytesIO(contents[block["file"]][start : start + block["num_bytes"]])
        values = torch.load(archive, weights_only=True).float().numpy()
        array = whole.setdefault(
            block["key"], np.full(block["whole_size"], math.nan, dtype=values.dtype)
        )
        place = zip(block["offsets"], block["sizes"], strict=True)
        array[tuple(slice(offset, offset + size) for offset, size in place)] = values
    assert whole, f"no parameters in {directory}"
    assert not any(np.isnan(array).any() for array in whole.values()), "a block is missing"
    return whole


def relative_difference(found: Parameters, expected: Parameters) -> float:
    """Return the L2 norm of the difference over that of ``expected``, over all parameters."""
    assert found.keys() == expected.keys()
    squares = sum(float(np.square(found[key] - expected[key], dtype=float).sum()) for key in found)
    norm = sum(float(np.square(array, dtype=float).sum()) for array in expected.values())
    return math.sqrt(squares / norm)
