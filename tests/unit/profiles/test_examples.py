"""The examples are files that work."""

from pathlib import Path

from profiles.tasks import load_task_profiles

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example_tasks_load() -> None:
    pipeline, small = load_task_profiles(EXAMPLES / "tasks.toml")
    assert pipeline.throughput.layout(4).pp == 2
    assert small.workers == 2
