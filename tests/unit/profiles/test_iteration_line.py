"""Megatron-LM's iteration line, as its versions, its descendants and their launchers print it."""

import math

import pytest

from profiles.iteration_line import IterationLine, parse_iteration_line

CORE_0_12 = (
    " [2025-04-02 09:11:12.345678] iteration       10/     500 | consumed samples:         2560 |"
    " elapsed time per iteration (ms): 812.3 | throughput per GPU (TFLOP/s/GPU): 123.4 |"
    " learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 1.071234E+01 |"
    " loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |"
)
V2 = (
    " iteration      100/  320000 | consumed samples:        25600 | elapsed time per iteration"
    " (ms): 4012.7 | learning rate: 1.499E-04 | global batch size:   256 | lm loss: 7.241106E+00 |"
    " loss scale: 65536.0 | grad norm: 2.113 | number of skipped iterations:   0 | number of nan"
    " iterations:   0 |"
)
V1 = (
    " iteration      200/ 1000000 | elapsed time per iteration (ms): 612.3 | learning rate 1.500E-04"
    " | lm loss 6.741E+00 | loss scale 131072.0 |"
)
DEEPSPEED = (
    "[default7]: iteration        3/  143051 | consumed samples:         3072 | consumed tokens:"
    "      6291456 | elapsed time per iteration (ms): 12345.6 | learning rate: 3.932E-07 | global"
    " batch size:  1024 | lm loss: 1.101E+01 | loss scale: 4096.0 | grad norm: 53.211 | num zeros:"
    " 0.0 | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:"
    "   0 | samples per second: 82.945 | TFLOPs: 131.20 |"
)
MOE = (
    " [2025-01-02 03:04:05] iteration       50/    1000 | consumed samples:          800 | elapsed"
    " time per iteration (ms): 95.0 | learning rate: 1.0E-04 | global batch size:    16 |"
    " load_balancing_loss: 1.042E+00 | lm loss: 9.1E+00 | loss scale: 1.0 | grad norm: 0.9 |"
)
SKIPPED = (
    " [2025-01-02 03:04:05] iteration        1/    1000 | consumed samples:           16 | elapsed"
    " time per iteration (ms): 5012.0 | learning rate: 0.0E+00 | global batch size:    16 | loss"
    " scale: 4294967296.0 | number of skipped iterations:   1 | number of nan iterations:   0 |"
)
NAN = (
    " iteration       12/    1000 | elapsed time per iteration (ms): 10.0 | lm loss: NAN | grad"
    " norm: nan | number of nan iterations:   1 |"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (CORE_0_12, IterationLine(10, 0.8123, 10.71234, 1.234)),
        (V2, IterationLine(100, 4.0127, 7.241106, 2.113)),
        (V1, IterationLine(200, 0.6123, 6.741, None)),
        (DEEPSPEED, IterationLine(3, 12.3456, 11.01, 53.211)),
        (MOE, IterationLine(50, 0.095, 9.1, 0.9)),
        (SKIPPED, IterationLine(1, 5.012, None, None)),
        ("7: " + V2.strip() + "\n", IterationLine(100, 4.0127, 7.241106, 2.113)),
    ],
    ids=["core 0.12", "v2", "v1", "DeepSpeed", "MoE", "skipped", "srun --label"],
)
def test_lines_of_every_version_are_read(line: str, expected: IterationLine) -> None:
    found = parse_iteration_line(line)
    assert found is not None
    assert found.duration_s == pytest.approx(expected.duration_s)
    assert found.iteration == expected.iteration
    assert (found.loss, found.grad_norm) == (expected.loss, expected.grad_norm)


def test_a_loss_that_is_no_number_is_read_as_such() -> None:
    found = parse_iteration_line(NAN)
    assert found is not None
    assert found.loss is not None
    assert found.grad_norm is not None
    assert math.isnan(found.loss)
    assert math.isnan(found.grad_norm)


@pytest.mark.parametrize(
    "line",
    [
        "",
        " validation loss at iteration 100 on validation set | lm loss value: 1.07E+01 |",
        "successfully saved checkpoint from iteration     500 to checkpoints",
        "Training:  10%|#         | iteration 10/100 [00:10<01:30]",
        "iteration 10/100 |",
        "(min, max) time across ranks (ms):",
        "iteration 99999999999999999999/1 | lm loss: 1.0 |",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert parse_iteration_line(line) is None


def test_fields_without_sense_are_left_out_and_a_long_line_costs_nothing() -> None:
    line = (
        " iteration 5/10 | elapsed time per iteration (ms): 1.2.3 | lm loss: 2.0 | " + "| " * 10**6
    )
    found = parse_iteration_line(line)
    assert found is not None
    assert (found.duration_s, found.loss) == (None, 2.0)
