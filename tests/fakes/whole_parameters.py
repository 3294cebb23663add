"""The parameters of the whole model, read from a checkpoint on disk and compared.

Only what the manifest says of the blocks is used, and nothing of the code that loads checkpoints.
"""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

_COPY = "optimizer.state.fp32_param."

Parameters = dict[str, "np.ndarray[Any, Any]"]


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
