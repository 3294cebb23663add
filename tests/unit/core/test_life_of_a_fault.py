"""Walks the fault that ``docs/life-of-a-fault.md`` describes, and compares the ways."""

import ast
import re
import sys
from pathlib import Path
from types import FrameType

from controller.core import sweeps
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "life-of-a-fault.md"
Function = tuple[str, str]
"""The file of a function, from the root of the repository, and its name."""
WAY_OF_A_CURE = ("controller/core/incidents/cures.py", "_try_to_name")
MOST_STAYS = 20


def walk() -> tuple[dict[Function, None], dict[Function, None]]:
    """Return the core's functions in the order in which a fault calls them first.

    Returns:
        All of them, until training goes on; and those that name the fault and begin its cure.
    """
    every: dict[Function, None] = {}
    cure: dict[Function, None] = {}
    depth = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(REPOSITORY / "controller" / "core"):
            return
        function = str(path.relative_to(REPOSITORY)), frame.f_code.co_name
        if function == WAY_OF_A_CURE:
            depth += {"call": 1, "return": -1}.get(event, 0)
        if event == "call":
            every.setdefault(function)
            if depth:
                cure.setdefault(function)

    world = World(demo_machine())
    world.run(6.0)
    sys.setprofile(note)
    try:
        message = "CUDA error: an illegal memory access was encountered"
        world.raise_in_rank("gpt-a", 1, "RuntimeError", message)
        world.run_until(lambda: not world.machine.state.incidents.open() or None, 30.0)
    finally:
        sys.setprofile(None)
    assert len(world.machine.state.incidents.all) == 1
    return every, cure


def test_the_core_calls_what_the_page_names_in_its_order() -> None:
    every, _ = walk()
    text = PAGE.read_text().partition("## If it were SEV1")[0]
    named = re.findall(r"`(controller/core/[\w/]+\.py):(\w+)`", text)
    assert len(named) >= 12
    assert [each for each in named if each not in every] == []
    # A sweep runs after every event, whether it finds anything to do or not.
    swept = {each.__name__ for each in vars(sweeps).values() if callable(each)} | {"settle"}
    once = [each for each in named if each[1] not in swept]
    assert once == [each for each in every if each in once]


def test_few_modules_are_visited_between_the_evidence_and_the_cure() -> None:
    _, cure = walk()
    modules = [path for path, name in cure if not _is_read_in_passing(path, name)]
    stays = [path for path, before in zip(modules, ["", *modules], strict=False) if path != before]
    assert WAY_OF_A_CURE[0] == stays[0]
    assert "controller/core/rules/actions.py" in stays
    assert len(stays) <= MOST_STAYS, stays


def _is_read_in_passing(path: str, name: str) -> bool:
    """Whether its name says what it does: a property, or a method of a record."""
    if path.startswith("controller/core/state/") or name.startswith("<"):
        return True
    tree = ast.parse((REPOSITORY / path).read_text())
    return any(
        isinstance(each, ast.FunctionDef)
        and each.name == name
        and any(ast.unparse(one) == "property" for one in each.decorator_list)
        for each in ast.walk(tree)
    )
