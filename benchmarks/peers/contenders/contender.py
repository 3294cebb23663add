"""The contenders' interface, and the alternatives, which run the benchmark's own training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from peers.contenders.alternative_settings import Variant
from peers.runs.fault_scenarios import FaultScenario
from peers.runs.peer_rank_records import JournalReader, RunRecord
from peers.runs.peer_run import Limits, Run, RunOutcome
from peers.runs.workload_plan import RunPlan, Workload


@dataclass(frozen=True, slots=True)
class CampaignContext:
    """What all runs of a campaign share.

    Attributes:
        programs: Where the virtual environment has its programs.
        show: Told the records of the run again and again.
    """

    programs: Path
    workload: Workload
    show: Callable[[Sequence[RunRecord]], None]


class Contender(Protocol):
    """A way to survive faults."""

    @property
    def name(self) -> str:
        """Name on the command line and in the results."""
        ...

    @property
    def what(self) -> str:
        """Its settings in words."""
        ...

    def run(self, scenario: FaultScenario, directory: Path, context: CampaignContext) -> RunOutcome:
        """Train once in the empty ``directory``, breaking as ``scenario`` says."""
        ...


@dataclass(frozen=True, slots=True)
class AlternativeContender:
    """Anything that runs the benchmark's own training."""

    variant: Variant

    @property
    def name(self) -> str:
        """Name on the command line and in the results."""
        return self.variant.name

    @property
    def what(self) -> str:
        """Its settings in words."""
        return self.variant.what

    def run(self, scenario: FaultScenario, directory: Path, context: CampaignContext) -> RunOutcome:
        """Train once in the empty ``directory``, breaking as ``scenario`` says."""
        variant = self.variant
        plan = RunPlan(context.workload, tuple(scenario.faults), str(directory))
        plan.settings.update(variant.settings_for(is_silent=plan.is_silent))
        plan.write()
        run = Run(
            context.workload, Limits(recovery_s=scenario.recovery_limit_s), directory, context.show
        )
        commands = variant.commands(context.programs, plan)
        return run.make(commands, JournalReader(plan.journal), num_servers=variant.num_servers)
