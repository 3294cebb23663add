"""Each import contract of ``pyproject.toml`` fails the lint when one import breaks it.

The imports are tried on a copy of the packages. That the packages themselves keep the contracts is
not tested here: ``make lint`` does that.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
_PRODUCT: Final = "The product knows neither tests nor tools nor benchmarks"
_PACKAGES: Final = ("console", "controller", "nodeagent", "profiles")
_SETTINGS: Final = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
_CONTRACTS: Final[list[dict[str, Any]]] = _SETTINGS["tool"]["importlinter"]["contracts"]
_FORBIDDEN: Final = {  # by contract: a module, and what it must not import
    "Packages are layered": ("profiles.layout", "nodeagent.protocol.ids"),
    "Inside the controller, edges depend on the core and never the reverse": (
        "controller.core.timers",
        "controller.store.journal",
    ),
    "The core's rooms are layered": ("controller.core.state.turn", "controller.core.machine"),
    "The core's rules are layered, and know neither state nor turn": (
        "controller.core.rules.evidence",
        "controller.core.rules.hang",
    ),
    "Inside the node agent, edges depend on the pure parts": (
        "nodeagent.protocol.ids",
        "nodeagent.process_tools.beat",
    ),
    "Inside a rank, rooms are layered": (
        "nodeagent.rank.agent_link.control_link",
        "nodeagent.rank.training.training_loop",
    ),
    "Inside the simulator, the world knows no policy": (
        "controller.simulation.world.breakage",
        "controller.simulation.policies.static_division",
    ),
    "Inside the console, widgets know view models and nothing else": (
        "console.widgets.bars",
        "console.app",
    ),
    "Inside the view model, panels are drawn from the console's state": (
        "console.viewmodel.activity",
        "console.viewmodel.words",
    ),
    "Inside the profiles, files of tables are read below the profiles of tasks": (
        "profiles.layout",
        "profiles.task_profiles",
    ),
    "The console reaches the controller only through its API": (
        "console.client.controller_link",
        "controller.core.machine",
    ),
    "The controller reaches the agent only through the protocol": (
        "controller.fleet.bundle",
        "nodeagent.agent",
    ),
    "The core knows nothing of the agent but the protocol": (
        "controller.core.timers",
        "nodeagent.detect.stacks",
    ),
    _PRODUCT: ("controller.cli", "prose"),
    "Pure packages perform no I/O and read no clock": ("profiles.model", "time"),
    "torch is reachable only from the rank-side integration": ("nodeagent.ranks.launcher", "torch"),
    "The agent knows nothing of the code inside a rank": (
        "nodeagent.session.local_queries",
        "nodeagent.rank.training.training_loop",
    ),
}
_EXHAUSTIVE: Final = [one["name"] for one in _CONTRACTS if one.get("exhaustive")]
_UNNAMED: Final = "room_without_layer"
_TITLE: Final = re.compile(r"^(.+)\n-+$", re.MULTILINE)


def _path_of(root: Path, module: str) -> Path:
    return root / Path(*module.split(".")).with_suffix(".py")


def _copy_packages(root: Path) -> None:
    shutil.copy(REPOSITORY / "pyproject.toml", root)
    for package in _PACKAGES:
        for source in (REPOSITORY / package).rglob("*.py"):
            target = root / source.relative_to(REPOSITORY)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def _lint(root: Path) -> dict[str, str]:
    """Lint the copy in ``root``. Returns the report on each broken contract by its name."""
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    # -P and the path set here: the repository itself is on the interpreter's path, too.
    done = subprocess.run(
        [sys.executable, "-P", "-c", lint, "--no-cache", "--no-logo"],
        cwd=root,
        env={"PYTHONPATH": str(root), "NO_COLOR": "1", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    _, _, broken = done.stdout.partition("Broken contracts")
    assert broken, done.stdout + done.stderr
    parts = _TITLE.split(broken)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    root = tmp_path_factory.mktemp("packages")
    _copy_packages(root)
    for importer, imported in _FORBIDDEN.values():
        path = _path_of(root, importer)
        assert path.is_file()
        path.write_text(f"{path.read_text()}\nimport {imported}\n")
    for contract in _CONTRACTS:
        if contract.get("exhaustive"):
            for container in contract["containers"]:
                _path_of(root, f"{container}.{_UNNAMED}").write_text("")
    yield _lint(root)
    shutil.rmtree(root)


def test_each_contract_has_an_import_that_breaks_it() -> None:
    assert list(_FORBIDDEN) == [contract["name"] for contract in _CONTRACTS]


@pytest.mark.parametrize("contract", _FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(contract: str, broken: dict[str, str]) -> None:
    importer, imported = _FORBIDDEN[contract]
    assert f"{importer} -> {imported} (l." in broken[contract]


@pytest.mark.parametrize("contract", _EXHAUSTIVE)
def test_a_room_that_no_layer_names_breaks_the_contract(
    contract: str, broken: dict[str, str]
) -> None:
    assert _UNNAMED in broken[contract]


def test_the_product_is_forbidden_all_that_tools_and_benchmarks_put_on_the_path() -> None:
    forbidden = next(one["forbidden_modules"] for one in _CONTRACTS if one["name"] == _PRODUCT)
    tools = {path.stem for path in (REPOSITORY / "tools").glob("*.py")}
    folders = {path.parent.name for path in (REPOSITORY / "benchmarks").glob("*/__init__.py")}
    assert sorted(forbidden) == sorted(tools | folders | {"benchmarks", "tests", "tools"})
