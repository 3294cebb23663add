"""Completion: the words that a shell may offer, also names of a running controller."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cli import main
from tests.fakes.served_clusters import served, socket_in, with_a_waiting_plan

UNICRON = Path(sys.executable).with_name("unicron")


def offered(line: str, directory: Path) -> list[str]:
    """Return what is offered at the end of a line, asked as a shell asks."""
    answer = directory / "answer"
    environment = os.environ | {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "_ARGCOMPLETE_SHELL": "fish",
    }  # fmt: skip
    done = subprocess.run(
        [UNICRON], env=environment, cwd=directory, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = answer.read_text().split("\n") if answer.exists() else []
    return [word.partition("\t")[0].strip() for word in words if word]


def test_commands_and_options_are_offered(tmp_path: Path) -> None:
    assert offered("unicron ap", tmp_path) == ["approve"]
    assert offered("unicron reject --rea", tmp_path) == ["--reason"]
    assert offered("unicron nonsense --rea", tmp_path) == []


async def test_names_are_those_of_the_running_controller(tmp_path: Path) -> None:
    there = f"--connect {socket_in(tmp_path)}"
    async with served(tmp_path) as server:
        plan = await with_a_waiting_plan(server)
        for line, expected in {
            f"unicron tasks {there} gpt": ["gpt-a"],
            f"unicron uncordon {there} n": ["n1", "n2"],
            f"unicron explain {there} ": [plan, "gpt-a", "n1", "n2"],
            f"unicron approve {there} P": [f"{plan}:1"],
        }.items():
            found = await asyncio.to_thread(offered, line, tmp_path)
            assert [word for word in found if not word.startswith("-")] == expected
    assert offered(f"unicron tasks {there} gpt", tmp_path) == []


SESSIONS = {
    "bash": (
        "bash --norc -c",
        (
            'eval "$(unicron completion bash)"; COMP_WORDS=(unicron aud); COMP_CWORD=1;'
            ' COMP_LINE="unicron aud"; COMP_POINT=11; COMP_TYPE=9; _python_argcomplete unicron;'
            ' echo "${COMPREPLY[@]}"'
        ),
    ),
    "fish": (
        "fish --no-config -c",
        'unicron completion fish | source; complete -C "unicron aud"',
    ),
    "zsh": (
        "zsh -f -c",
        'autoload -U compinit; compinit -u -D; eval "$(unicron completion zsh)"; echo audit $_comps[unicron]',
    ),
}


@pytest.mark.parametrize("shell", SESSIONS)
def test_a_shell_takes_the_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} is installed")
    begin, script = SESSIONS[shell]
    environment = os.environ | {
        "PATH": f"{UNICRON.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)
    }  # fmt: skip
    done = subprocess.run(
        [*begin.split(), script], env=environment, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.split()[:1] == ["audit"], done.stderr
    assert shell != "zsh" or "_python_argcomplete" in done.stdout


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "csh"])
    assert "invalid choice: 'csh'" in capsys.readouterr().err
