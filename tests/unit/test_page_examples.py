"""Examples of pages are run again, and pages keep all else."""

import os
import subprocess

import pytest

from tools.page_examples import made_anew

PAGE = """\
# A page

    $ echo left as it is
    old

<!-- example -->

    $ printf 'one\\n\\n  two\\n'
    old

    older

Text after it.

    $ echo left, too
"""
EXPECTED = PAGE.replace("    old\n\n    older\n", "    one\n\n      two\n")


def test_what_a_command_prints_now_takes_the_place_of_what_stood_there() -> None:
    assert made_anew(PAGE, os.environ) == EXPECTED
    assert made_anew(EXPECTED, os.environ) == EXPECTED


def test_a_command_that_fails_changes_nothing() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        made_anew(PAGE.replace("printf", "false"), os.environ)
