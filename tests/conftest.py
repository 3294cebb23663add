"""Which tests may run beside which, where `make test` runs three at a time.

Drills start whole demos, so they take turns. So does what looks closely at the timing of agents and
SSH servers, and so do the ranks, which need all the memory bandwidth there is. These three groups
begin side by side, the longest first. Everything else follows wherever there is room. On 2 cores
that took 658 to 738 s in four runs and left 5 % of the processor time; two at a time took 742 and
759 s and left 18 %.

Property tests take the same examples every time, so that what fails does so because of a change;
`make explore` looks for new ones. Hypothesis draws some values from the constants of the modules
that happen to be imported. So the examples would depend on the tests that ran before: a seed that
finds a broken rule in a second needed 46 s in the whole run.
"""

import logging
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from controller.python_settings import collect_seldom
from tests.fakes.left_processes import pytest_runtest_call

__all__ = ["pytest_runtest_call"]

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("repeatable")

# A line per packet of SFTP costs tests more than it tells.
logging.getLogger("asyncssh").setLevel(logging.INFO)

_TESTS = Path(__file__).parent
_GROUP_BY_PLACE = {
    "drills": "drills",
    "agent": "cluster",
    "console/test_terminal.py": "cluster",
    "ssh": "cluster",
    "ranks": "ranks",
}
_ORDER = list(dict.fromkeys(_GROUP_BY_PLACE.values()))


def pytest_configure(config: pytest.Config) -> None:
    """Have examples repeat, and give signals their default action.

    A shell's background and ``nohup`` ignore some. Children inherit that, and tests end their
    programs by these signals.
    """
    if config.getoption("hypothesis_profile", None) is None:
        vars(providers)["is_local_module_file"] = lambda _: False
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of each test and sort by them; those of a group run one after the other."""
    groups = {item: _group_of(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group or _place_of(item).as_posix()))
    items.sort(key=lambda item: [*_ORDER, None].index(groups[item]))


def pytest_collection_finish() -> None:
    """Have Python look seldom for garbage, and never at the modules.

    That took a tenth of the processor time of 1,778 unit tests.
    """
    collect_seldom()


def _group_of(item: pytest.Item) -> str | None:
    """Return the group that a test shares with other files; None if it has one of its own."""
    place = _place_of(item)
    return _GROUP_BY_PLACE.get(place.parts[0]) or _GROUP_BY_PLACE.get(place.as_posix())


def _place_of(item: pytest.Item) -> Path:
    return item.path.relative_to(_TESTS)
