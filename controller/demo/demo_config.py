"""The controller config of a demo: the nodes of its local cluster, and its task profiles."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from controller.demo.demo_options import DemoOptions
from controller.localcluster.local_node import LocalNode
from controller.server.controller_config import ControllerConfig
from controller.server.profile_tasks import TrainingOptions, task_programs, task_spec


def demo_config(options: DemoOptions, nodes: Sequence[LocalNode], root: Path) -> ControllerConfig:
    """Return the controller config of a demo over ``nodes``; its checkpoints lie below ``root``."""
    has_template = any(profile.command is None for profile in options.profiles)
    training = TrainingOptions(
        root / "checkpoints", options.data_path, options.seed, options.num_iterations
    )
    return ControllerConfig(
        addresses=[replace(node.address, has_template=has_template) for node in nodes],
        tasks=[task_spec(profile, options.num_iterations) for profile in options.profiles],
        programs=task_programs(options.profiles, training),
        policy=options.policy,
        tables=options.tables,
        failure_domains=options.failure_domains,
    )
