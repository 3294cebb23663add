"""Published measurements as a file: one JSON object a line.

The keys are those of ``profiles/data/throughput/published.jsonl``; its README explains them. A null
is unknown. ``kv_heads``, ``ffn``, ``gated``, ``virtual_stages``, ``cp`` and ``flops`` may be added
where a source states them.
"""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from profiles.estimate.training_setup import Recompute
from profiles.records import Record, RecordError, parse_record, read_text

_MAX_COUNT: Final = 10**6
_Count = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
_Tokens = Annotated[int, Field(ge=1, le=10**8)]
_Layers = Annotated[int, Field(ge=1, le=10_000)]
_Number = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
_Mode = Annotated[Recompute, Field(strict=False)]

_NEEDED: Final = ("layers", "hidden", "heads", "seq", "vocab", "gpus", "gpu_type", "global_batch")


class Point(Record):
    """One measurement.

    Attributes:
        id: Distinct in its file.
        model: Name of the model; gives kv heads and gating of well-known ones.
        params_b: Parameters, 10^9.
        layers: Transformer layers.
        hidden: Width of the residual stream.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        ffn: Width of the feed-forward.
        gated: Whether the feed-forward has a gate.
        seq: Tokens of a sample.
        vocab: Tokens in the vocabulary.
        gpus: Workers.
        gpu_type: For instance ``A100-80GB``.
        tp: Tensor-parallel size.
        pp: Pipeline stages.
        dp: Replicas.
        virtual_stages: Virtual stages of each pipeline stage.
        cp: Context-parallel size, beside ``dp``.
        micro_batch: Samples of a micro-batch.
        global_batch: Samples of an iteration.
        recompute: none, selective, full or offload.
        precision: bf16, fp16 or fp8.
        framework: Software, as the source names it.
        series: Points of one source and software version.
        flops: How the operations of ``model_tflops_per_gpu`` were counted: ``megatron`` (the whole
            square of attention, the default) or ``causal`` (half of it).
        model_tflops_per_gpu: What was measured, 10^12 FLOP/s, recomputation not counted.
        source: Where it was published.
        not_stated: Keys that were inferred.
    """

    id: str = Field(min_length=1)
    model: str | None = None
    params_b: _Number | None = None
    layers: _Layers | None = None
    hidden: _Count | None = None
    heads: _Count | None = None
    kv_heads: _Count | None = None
    ffn: _Count | None = None
    gated: bool | None = None
    seq: _Tokens | None = None
    vocab: _Tokens | None = None
    gpus: _Count | None = None
    gpu_type: str | None = None
    tp: _Count | None = None
    pp: _Count | None = None
    dp: _Count | None = None
    virtual_stages: _Count | None = None
    cp: _Count | None = None
    micro_batch: _Count | None = None
    global_batch: _Count | None = None
    recompute: _Mode | None = None
    precision: str | None = None
    framework: str | None = None
    series: str | None = None
    flops: Literal["megatron", "causal"] | None = None
    model_tflops_per_gpu: _Number | None = None
    source: str | None = None
    not_stated: list[str] | None = None

    @property
    def missing(self) -> str | None:
        """Name what a prediction needs and the point lacks, or None."""
        found = [key for key in _NEEDED if getattr(self, key) is None]
        return f"{', '.join(found)} not given" if found else None


def load_points(path: Path) -> list[Point]:
    """Return the points of a JSONL file, in its order.

    Raises:
        RecordError: The file can't be read, or a line of it is wrong.
    """
    text = read_text(path)
    return parse_points(text, str(path))


def parse_points(text: str, source: str) -> list[Point]:
    """Return the points of a JSONL text. Raises ``RecordError`` where a line is wrong."""
    points: list[Point] = []
    line_by_id: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{source}: line {number}"
        point = parse_record(Point, line, place)
        if point.id in line_by_id:
            raise RecordError(
                f"{place}: id: {point.id!r} stands in line {line_by_id[point.id]} too"
            )
        line_by_id[point.id] = number
        points.append(point)
    if not points:
        raise RecordError(f"{source}: no point in it: write one JSON object a line")
    return points
