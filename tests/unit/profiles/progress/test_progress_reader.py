"""Progress of programs in their own words, read line by line."""

import re

import pytest

from profiles.progress.progress_patterns import ProgressPattern, known_patterns, own_pattern
from profiles.progress.progress_reader import NUM_LINES, ProgressReader


def read(text: str, own: str = "") -> list[tuple[int, float | None]]:
    """Return iteration and loss of each iteration that the lines of ``text`` tell."""
    reader = ProgressReader(own)
    found = [reader.take(line) for line in text.splitlines()]
    return [(each.iteration, each.loss) for each in found if each is not None]


NANOGPT = """
tokens per iteration will be: 491,520
iter 0: loss 10.9, time 900.00ms, mfu -100.00%
iter 10: loss 4.25, time 22.41ms, mfu 3.05%
step 10: train loss 4.1000, val loss 4.2000
iter 20: loss nan, time 22.41ms, mfu 3.05%
"""
HF = """
Loading checkpoint shards: 100%|##########| 2/2 [00:00<00:00,  2.10it/s]
  0%|          | 0/100 [00:00<?, ?it/s]
  9%|9         | 9/100 [00:02<00:18,  4.88it/s]

{'loss': 4.25, 'grad_norm': 1.5, 'learning_rate': 4.5e-05, 'epoch': 0.1}
 10%|#         | 10/100 [00:02<00:18,  4.88it/s]
 19%|#9        | 19/100 [00:02<00:18,  4.88it/s]
{'loss': '3.5', 'grad_norm': '1.25', 'learning_rate': '4e-05', 'epoch': '0.2'}
 20%|##        | 20/100 [00:02<00:18,  4.88it/s]
 50%|#####     | 5/10 [00:00<00:00,  4.88it/s]
{'eval_loss': 3.2, 'eval_runtime': 1.0, 'epoch': 0.2}
 20%|##        | 20/100 [00:02<00:18,  4.88it/s]
"""
HF_WITHOUT_BAR = """
{'loss': 4.25, 'learning_rate': 4.5e-05, 'epoch': 0.5}
{'loss': 3.5, 'learning_rate': 4e-05, 'epoch': 0.6}
{'loss': 3.25, 'learning_rate': 3e-05, 'epoch': 0.7}
{'train_runtime': 12.0, 'train_loss': 3.7, 'epoch': 1.0}
"""
LIGHTNING = """
Sanity Checking DataLoader 0: 100%|##########| 2/2 [00:00<00:00, 90.00it/s]
Training: |          | 0/? [00:00<?, ?it/s]
Epoch 0:   0%|          | 0/50 [00:00<?, ?it/s]
Epoch 0:  10%|#         | 5/50 [00:02<00:18,  4.88it/s, v_num=0]
Epoch 0:  10%|#         | 5/50 [00:02<00:18,  4.88it/s, v_num=0, train_loss=4.250]
Epoch 0:  12%|#         | 6/50 [00:02<00:18,  4.88it/s, v_num=0, train_loss=4.250]
Validation DataLoader 0:  50%|#####     | 1/2 [00:00<00:00, 90.00it/s]
Epoch 2:  10%|#         | 5/50 [00:02<00:18,  4.88it/s, v_num=0, train_loss_step=4.250]
Epoch 2:  10%|#         | 5/50 [00:02<00:18,  4.88it/s, v_num=0, train_loss_step=3.500, val_loss=9.0]
Epoch 2:  10%|#         | 5/50 [00:02<00:18,  4.88it/s, v_num=0, train_loss_step=3.500, val_loss=9.0]
"""
LIGHTNING_RESUMED = """
Training: |          | 0/? [00:00<?, ?it/s]
Training: |          | 11/? [00:00<00:00, 57.58it/s]
Training: |          | 11/? [00:00<00:00, 57.39it/s, train_loss=0.750]
Training: |          | 12/? [00:00<00:00, 36.03it/s, train_loss=0.750]
Training: |          | 12/? [00:00<00:00, 35.39it/s, train_loss=0.500]
"""
LIGHTNING_STREAM = """
Epoch 0: |          | 9/? [00:00<00:00, 5.58it/s, train_loss=0.750]
Epoch 0: |          | 9/? [00:00<00:00, 5.58it/s, train_loss=0.500]
Epoch 1: |          | 1/? [00:00<00:00, 5.39it/s, train_loss=0.500]
Epoch 1: |          | 1/? [00:00<00:00, 5.39it/s, train_loss=0.250]
"""
RICH = "Epoch 0/-2 ━━━━━━━━━━ 12/{} 0:00:01 • 0:00:00 8.11it/s train_loss: 0.755"
TORCHTITAN = """
[rank0]:[titan] 2025-06-01 10:00:00,000 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.25  \x1b[38;2;180;60;0mgrad_norm:  1.5  \x1b[33mmemory:  1.2GiB(1.3%)
[titan] 2025-06-01 10:00:00,000 - root - INFO - step: 10  loss:  4.25  memory:  1.2GiB(1.3%)
"""
DEEPSPEED = """
steps: 10 loss: 4.2500 iter time (s): 0.512 samples/sec: 31.250
[2025-06-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001]
[2025-06-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=0, lr=[0.001]
[INFO] [timer.py:264:stop] epoch=0/micro_step=20/global_step=20, RunningAvgSamplesPerSec=31.2
"""
LLM_FOUNDRY = """
[batch=1/4800]:
\t Train time/epoch: 0
\t Train loss/train/total: 12.25
\t Train metrics/train/LanguageCrossEntropy: 12.2
[batch=2/4800]:
\t Train loss/train/total: 11.5
"""
MEGATRON = (
    " iteration       10/     500 | elapsed time per iteration (ms): 812.3 | lm loss: 4.25E+00 |"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NANOGPT, [1, 11, 21]),
        (HF, [10, 20]),
        (HF_WITHOUT_BAR, [6, 7]),
        (LIGHTNING, [5, 6, 105]),
        (TORCHTITAN, [1, 10]),
        (DEEPSPEED, [10, 20]),
        (LLM_FOUNDRY, [1, 2]),
        (MEGATRON, [10]),
    ],
)
def test_each_program_is_read(text: str, expected: list[int]) -> None:
    assert [iteration for iteration, _ in read(text)] == expected


def test_losses_belong_to_their_iterations() -> None:
    assert read(HF) == [(10, 4.25), (20, 3.5)]
    assert read(LLM_FOUNDRY) == [(1, 12.25), (2, 11.5)]
    assert read(LIGHTNING) == [(5, 4.25), (6, 4.25), (105, 3.5)]
    assert read(LIGHTNING_RESUMED) == [(11, 0.75), (12, 0.5)]
    assert read(LIGHTNING_STREAM) == [(9, 0.5), (10, 0.25)]
    assert read(TORCHTITAN) == [(1, 12.25), (10, 4.25)]


@pytest.mark.parametrize("total", ["12", "--"])
def test_a_bar_of_rich_is_read_with_or_without_an_end(total: str) -> None:
    assert read(RICH.format(total)) == [(12, 0.755)]


def test_a_bar_that_says_training_is_read_only_in_lightnings_words() -> None:
    assert read("Training:  12%|#  | 12/100 [00:01<00:08, 8.11it/s, loss=0.75]\n" * 2) == []


def test_a_line_of_megatron_takes_the_place_of_anothers_and_only_it() -> None:
    step = "[INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=0"
    both = "\n".join([step.format(9), MEGATRON, step.format(11)])
    assert read(both) == [(9, None), (10, 4.25)]


@pytest.mark.parametrize("pattern", known_patterns(), ids=lambda each: each.program)
def test_a_sample_is_read_by_its_own_program_alone(pattern: ProgressPattern) -> None:
    readers = [each for each in known_patterns() if each.regex.search(pattern.sample)]
    assert pattern in readers
    alone = {each.program for each in readers if not each.needs_figures}
    assert alone <= {pattern.program}


def test_rounded_epochs_late_in_a_run_number_no_line() -> None:
    text = "\n".join(f"{{'loss': '2.5', 'epoch': '{epoch}'}}" for epoch in (1.234, 1.235, 1.236))
    assert read(text) == [(2, 2.5), (3, 2.5)]


def test_bars_that_no_figures_precede_are_no_progress() -> None:
    text = "\n".join(f" {n}%|#  | {n}/100 [00:02<00:18,  4.88it/s]" for n in range(1, 100))
    assert read(text) == []


TEXTS = {
    "nanogpt": NANOGPT, "hf": HF, "hf_without_bar": HF_WITHOUT_BAR, "lightning": LIGHTNING,
    "resumed": LIGHTNING_RESUMED, "stream": LIGHTNING_STREAM, "rich": RICH,
    "torchtitan": TORCHTITAN, "deepspeed": DEEPSPEED, "llm_foundry": LLM_FOUNDRY,
    "megatron": MEGATRON,
}  # fmt: skip


@pytest.mark.parametrize(
    "number", ["9" * 20, "9" * 320, "9" * 5000, f"0.{'0' * 310}1", "1.2.3"], ids=len
)
@pytest.mark.parametrize("name", TEXTS)
def test_a_number_beyond_all_counts_is_no_iteration(name: str, number: str) -> None:
    """Wherever in the lines it stands."""
    text = TEXTS[name]
    for place in re.finditer(r"\d+(\.\d+)?", text):
        changed = text[: place.start()] + number + text[place.end() :]
        assert all(1 <= iteration < 10**12 for iteration, _ in read(changed))
    assert read(f"step {number}", r"step (?P<iteration>\d{20,})") == []


@pytest.mark.parametrize(
    ("lines", "num_read"),
    [
        ([f"{{'loss': 1.0, 'epoch': {epoch}}}" for epoch in ("1e-300", "2e-300", "9e11")], 2),
        (["Epoch 900000000000:  10%|#  | 5/900000000000 [00:02<00:18, train_loss=4.250]"] * 3, 0),
    ],
    ids=["quotient", "product"],
)
def test_what_is_computed_from_large_numbers_is_no_iteration(
    lines: list[str], num_read: int
) -> None:
    found = read("\n".join(lines))
    assert len(found) == num_read
    assert all(1 <= iteration < 10**12 for iteration, _ in found)


UNREAD = [
    "Step {} | train loss 2.5 | 12 ms",
    "[trainer] global_step={} loss=2.5",
    "2025-06-01 batch #{}: ok, it's fine",
    "update {}  Loss: 1.5e-3",
]


@pytest.mark.parametrize("line", UNREAD)
def test_lines_that_look_like_steps_are_shown_with_a_pattern_that_reads_them(line: str) -> None:
    reader = ProgressReader()
    for number in range(1, NUM_LINES):
        assert reader.take(line.format(number)) is None
    before = reader.unread
    assert before is None
    reader.take(line.format(NUM_LINES))
    assert reader.unread is not None
    assert reader.unread.line == line.format(NUM_LINES)
    assert "'" not in reader.unread.pattern
    found = ProgressReader(reader.unread.pattern).take(line.format(77))
    assert found is not None
    assert found.iteration == 77
    assert (found.loss is not None) is ("oss" in line)


@pytest.mark.parametrize(
    "lines",
    [
        ["step 1 of the set-up", "step 1 of the set-up", "step 1 of the set-up"],
        ["stage 1", "stage 2", "stage 3"],
        ["steps per epoch: 100", "batch size 8", "batch size 8", "batch size 8"],
        ["iter 0: loss 2.5", "step 1", "step 2", "step 3"],
    ],
)
def test_other_lines_are_not_called_steps(lines: list[str]) -> None:
    reader = ProgressReader()
    for line in lines:
        reader.take(line)
    assert reader.unread is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step (", "is no regular expression"),
        (r"step (\d+)", "needs the group (?P<iteration>"),
        (r"(?P<iteration>\d+) (?P<time>\d+)", "group 'time' is unknown; known: iteration,"),
    ],
)
def test_a_wrong_pattern_is_named(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        own_pattern(text)
    assert expected in str(refused.value)
