"""What makes a fork unsafe."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[5]


def hazard_in_a_process(setting: str) -> str:
    program = (
        f"import sys, threading, types\n{setting}\n"
        "from nodeagent.rank.process.fork import fork_hazard\nprint(fork_hazard())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout.strip()


def test_process_with_one_thread_can_be_forked() -> None:
    assert hazard_in_a_process("") == "None"


def test_second_thread_is_a_hazard() -> None:
    setting = "threading.Thread(target=threading.Event().wait, name='pool', daemon=True).start()"
    assert hazard_in_a_process(setting).endswith("the template has others: pool")


def test_initialised_cuda_is_a_hazard() -> None:
    setting = (
        "torch = types.ModuleType('torch')\n"
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)\n"
        "sys.modules['torch'] = torch"
    )
    assert "CUDA is initialised" in hazard_in_a_process(setting)
