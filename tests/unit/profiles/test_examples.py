"""The examples are files that work."""

from pathlib import Path

from profiles.task_profiles import load_task_profiles

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example_tasks_load() -> None:
    pipeline, small = load_task_profiles(EXAMPLES / "tasks.toml")
    assert pipeline.throughput.layout(4).pp == 2
    assert small.workers == 2


def test_the_task_with_a_program_of_its_own_loads_and_its_module_is_there() -> None:
    [own] = load_task_profiles(EXAMPLES / "own_loop" / "tasks.toml")
    assert own.program is not None
    module, _, function = own.program.function.partition(":")
    source = (Path(own.program.directory) / f"{module}.py").read_text()
    assert f"def {function}(context: Context) -> Loop:" in source
