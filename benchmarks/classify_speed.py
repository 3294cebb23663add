"""Measures how fast ``unicron classify`` reads a log, beside a plain read of the same bytes.

    python benchmarks/classify_speed.py [--kind KIND] [--megabytes N] [--rounds K] [--seed S]

The log is made. ``training`` is mostly progress lines of several trainers and ranks, NCCL and
launcher chatter, text of samples, progress bars, and a fault with its symptoms now and then; in
``prose`` no line is like another one; ``storm`` is nothing but lines of faults, their frames and
symptoms, and ``specimens`` the labelled texts of the tests over and over. Figures:

- ``mb_per_s``: findings of the whole log, one process, the best round;
- ``mb_per_cpu_s``: the same by processor time, which other load on the machine disturbs less;
- ``plain_mb_per_s``: the same bytes read, decoded and split into lines, in the same round;
- ``ratio``: plain time over the classifier's, the median of the rounds;
- ``peak_extra_mb``: growth of the peak of resident memory while the log is read.

These are measurements of one machine at one time, not limits.
"""

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness.result_pages import command_line, machine
from harness.termination import end_on_sigterm

from profiles.faults.catalogue import default_catalogue
from profiles.faults.stream import FindingStream

_CHUNK_BYTES: Final = 1 << 18
_MB: Final = 1_000_000
_SPECIMENS: Final = Path(__file__).parents[1] / "tests" / "unit" / "faults" / "specimens.jsonl"
_WORDS: Final = [
    "the",
    "model",
    "reads",
    "a",
    "token",
    "and",
    "writes",
    "gradient",
    "into",
    "shards",
    "while",
    "nodes",
    "pass",
    "rings",
    "of",
    "tensors",
    "around",
    "every",
    "layer",
    "attention",
    "head",
    "norm",
    "embedding",
    "router",
    "expert",
    "batch",
    "micro",
    "global",
]
_MEGATRON: Final = (
    " [{clock}] iteration {step:8d}/ 500000 | consumed samples: {samples:12d} | elapsed time per"
    " iteration (ms): {ms}.1 | learning rate: 2.681E-04 | global batch size:   512 | lm loss:"
    " {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)
_DATA: Final = "{rank}: {clock},019 INFO data: shard {key:010x} opened, {num} samples\n"
_NCCL: Final = (
    "n{node}:40{rank}:50{rank} [{local}] NCCL INFO Channel {channel:02d}/0 : {rank}[{local}] ->"
    " {rank}[{local}] via P2P/CUMEM\n"
)
_FAULT: Final = """\
[rank{rank}]:[W917 08:31:14.609764258 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=75, addr=[n{rank}]:40112, remote=[n0]:29510): Connection reset by peer
n{rank}:9120:9871 [1] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n3<55021>
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/w/model.py", line 140, in forward
[rank{rank}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered
"""
_STORM: Final = (
    "[rank{rank}]: RuntimeError: CUDA error: an illegal memory access was encountered\n",
    "n{rank}:{step}:{num} [1] NCCL WARN socketProgress: Connection closed by remote peer n3<{num}>\n",
    "frame #{rank}: c10::Error::Error() + 0x{num:x} (0x7f{num:x} in /opt/lib/libc10.so)\n",
    '[rank{rank}]:   File "/opt/torch/nn/modules/module.py", line {step}, in _call_impl\n',
    "[{step}.{num}] NVRM: Xid (PCI:0000:1b:00): 45, pid={num}, name=python3, Ch 00000012\n",
    "[rank{rank}]:[E114 10:11:12.{num}] Watchdog caught collective operation timeout: WorkNCCL(\n",
)
_Lines = Callable[[int, random.Random], list[str]]


def main() -> None:
    """Make a log, read it in both ways, and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--kind", choices=sorted(_LINES_BY_KIND), default="training")
    parser.add_argument("--megabytes", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--rounds", type=int, default=3, metavar="K", help="default 3")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default 1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        source = random.Random(arguments.seed)  # noqa: S311
        _write_log(path, arguments.megabytes * _MB, source, _LINES_BY_KIND[arguments.kind])
        report = _measure(path, arguments.rounds)
    json.dump({**machine(), "command": command_line(), **report}, sys.stdout, indent=1)
    sys.stdout.write("\n")


def _measure(path: Path, num_rounds: int) -> dict[str, Any]:
    default_catalogue()
    size_mb = path.stat().st_size / _MB
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plain_s, classify_s, cpu_s, num_findings = [], [], [], 0
    for _ in range(num_rounds):
        plain_s.append(_timed(lambda: _read_plainly(path))[0])
        cpu_before_s = time.process_time()
        seconds, num_findings = _timed(lambda: _classify(path))
        cpu_s.append(time.process_time() - cpu_before_s)
        classify_s.append(seconds)
    after_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "megabytes": round(size_mb, 1),
        "num_findings": num_findings,
        "mb_per_s": round(size_mb / min(classify_s), 1),
        "mb_per_cpu_s": round(size_mb / min(cpu_s), 1),
        "plain_mb_per_s": round(size_mb / min(plain_s), 1),
        "ratio": round(
            statistics.median(p / c for p, c in zip(plain_s, classify_s, strict=True)), 4
        ),
        "peak_extra_mb": round((after_kb - before_kb) / 1000, 1),
    }


def _timed(run: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def _read_plainly(path: Path) -> int:
    with path.open("rb") as file:
        return sum(
            len(chunk.decode("utf-8", "replace").splitlines())
            for chunk in iter(lambda: file.read(_CHUNK_BYTES), b"")
        )


def _classify(path: Path) -> int:
    stream = FindingStream()
    with path.open("rb") as file:
        found = sum(len(stream.feed(chunk)) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    return found + len(stream.close())


def _write_log(path: Path, num_bytes: int, source: random.Random, lines_of: _Lines) -> None:
    with path.open("w") as file:
        step = 0
        while file.tell() < num_bytes:
            step += 1
            file.write("".join(lines_of(step, source)))


def _lines_of_prose(step: int, source: random.Random) -> list[str]:
    words = " ".join(source.choice(_WORDS) for _ in range(12))
    name, path = (_name(int(source.paretovariate(0.7))) for _ in range(2))
    return [f"[{step}] {name} {words} /data/{path}/{source.getrandbits(20)}.bin\n"]


def _name(number: int) -> str:
    """Return the word of ``number``: few words are common, rare ones never end."""
    return "".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz", k=8))  # noqa: S311


def _lines_of_storm(step: int, source: random.Random) -> list[str]:
    rank, num = source.randrange(512), source.getrandbits(30)
    lines = [line.format(rank=rank, num=num, step=step) for line in _STORM]
    source.shuffle(lines)
    return lines


def _lines_of_step(step: int, source: random.Random) -> list[str]:
    loss, norm = 2 + source.random(), 0.3 + source.random() / 10
    clock = f"2026-01-{step % 28 + 1:02d} {step % 24:02d}:{step % 60:02d}:{step * 7 % 60:02d}"
    rank = source.randrange(64)
    lines = [
        _MEGATRON.format(
            clock=clock, step=step, samples=step * 512, ms=5000 + rank, loss=loss, norm=norm
        ),
        f"[rank{rank}]: step {step} | loss {loss:.4f} | {50 + source.random():.2f}k tok/s\n",
        _DATA.format(rank=rank, clock=clock, key=source.getrandbits(40), num=step % 99991),
        _NCCL.format(node=rank // 8, rank=rank, local=rank % 8, channel=step % 24),
        f"{{'loss': {loss:.4f}, 'grad_norm': {norm:.4f}, 'epoch': 0.{step % 99}}}\n",
    ]
    if step % 10 == 0:
        text = " ".join(source.choice(_WORDS) for _ in range(14))
        lines.append(f"sample {step}: {text}\n")
        bar = "█" * (step // 10 % 10)
        lines.append(f"\r {step % 100:3d}%|{bar:<10}| {step % 400}/400 [12:07<17:10,  4.37s/it]\n")
    if step % 5000 == 0:
        lines.append(_FAULT.format(rank=rank))
    return lines


def _lines_of_specimens(_step: int, source: random.Random) -> list[str]:
    texts = [json.loads(line)["text"] for line in _SPECIMENS.read_text().splitlines()]
    source.shuffle(texts)
    return [f"{text}\n" for text in texts]


_LINES_BY_KIND: Final[dict[str, _Lines]] = {
    "training": _lines_of_step,
    "prose": _lines_of_prose,
    "storm": _lines_of_storm,
    "specimens": _lines_of_specimens,
}

if __name__ == "__main__":
    main()
