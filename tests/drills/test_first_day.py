"""``docs/operations/first-day.md``, followed command by command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.demo_runs import processes_under

pytestmark = [pytest.mark.drill, pytest.mark.ranks, pytest.mark.ssh, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "first-day.md"
_PROMPT = "    $ "
_MARK = "=== "


def commands() -> list[str]:
    """Return the commands of the page, in their order."""
    lines = PAGE.read_text().splitlines()
    return [line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT)]


_WAITING = re.compile(r"sleep (\d+); (.*)")
_SHOWN_AFTER_WAITING = {
    "unicron status": ("gpt-b │ running", "gpt-a │ running"),
    "grep I-1": ("resolved",),
    "grep -e lost_connection": ("P-1    applied in", "I-2    resolved"),
    "unicron status ||": ("exit code 3",),
    "grep -e taken": ("taken over", "n1     back", "n2     back", "n4     back"),
}
"""By the beginning of a command that the page runs after a pause: what it is to show then."""


def without_pause(line: str) -> str:
    """Return a command that waits for what it is to show, where the page has readers wait."""
    found = _WAITING.fullmatch(line)
    if found is None:
        return line
    words = max((each for each in _SHOWN_AFTER_WAITING if found[2].startswith(each)), key=len)
    tests = " && ".join(f"grep -qF '{each}' <<< \"$shown\"" for each in _SHOWN_AFTER_WAITING[words])
    limit = 4 * int(found[1]) + 20
    # A verb takes the processor half a second to start, which the training needs.
    pause_s = 1.5 if found[2].startswith("unicron") else 0.3
    return (
        f"SECONDS=0; until shown=$({found[2]}); {tests} || [ $SECONDS -gt {limit} ];"
        f' do sleep {pause_s}; done; echo "$shown"'
    )


def test_the_page_leads_from_nodes_to_a_healed_cluster_and_its_end(
    short_tmp: Path, tmp_path: Path
) -> None:
    script = "".join(
        f"echo '{_MARK}{n}'\n{without_pause(line)}\n" for n, line in enumerate(commands())
    )
    python = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{python}:{os.environ['PATH']}", "TMPDIR": str(short_tmp),
             "COLUMNS": "160"},
    )  # fmt: skip
    shown = done.stdout + done.stderr
    for words in (
        "demo   ready: unicron run",
        "plans wait for approval",
        "gpt-a │ running",
        # Its peers may have reported by then: then "3 symptom(s) elsewhere" follows.
        "SEV2 exited_abnormally on n1: rank 1 was ended by SIGKILL; ",
        "; action: restart",
        "SEV1 lost_connection on n3",
        "gpt-b shrinks 4 -> 2",
        "P-1    applied in",
        "exit code 3",
        "has taken over (term 2)",
        "the same agent holds 2 living rank(s)",
        "task gpt-a: running",
        "cluster demo is down",
    ):
        assert words in shown, shown
    assert shown.count("resolved") >= 2
    assert processes_under(short_tmp) == []
    assert "Traceback" not in shown
