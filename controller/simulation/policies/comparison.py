"""Runs several policies with the same seeds; each seed gives all policies the same faults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from controller.simulation.policies.baselines import BASELINES
from controller.simulation.policies.static_division import run_baseline
from controller.simulation.policies.unicron_core import run_unicron
from controller.simulation.policies.worker_processes import Job, ProcessKilledError, run_jobs
from controller.simulation.scenarios.scenario import Scenario
from controller.simulation.world.event_sequence import draw_events
from controller.simulation.world.initial_setup import InitialSetup, setup_of
from controller.simulation.world.worker_time import WorkerAccount
from profiles.records import RecordError

UNICRON: Final = "unicron"
APPROVED: Final = "unicron-approved"
"""Unicron with an operator who approves every plan."""
POLICIES: Final = (UNICRON, *BASELINES)
"""The default policies."""
ALL_POLICIES: Final = (UNICRON, APPROVED, *BASELINES)
_NUM_RESAMPLES: Final = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with its 95 % confidence interval (bootstrap)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Return the interval of the mean of some values."""
        array = np.asarray(values, np.float64)
        picks = np.random.default_rng(0).integers(len(array), size=(_NUM_RESAMPLES, len(array)))
        means = array[picks].mean(axis=1)
        low, high = np.percentile(means, [2.5, 97.5])
        return cls(float(array.mean()), float(low), float(high))

    def as_json(self) -> dict[str, float]:
        """Return the interval as JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Campaign:
    """The results of a scenario.

    Attributes:
        setup: The setup of all runs.
        num_seeds: Runs of each policy.
        accounts: The accounts of each policy, one per seed.
        is_interrupted: Whether Ctrl-C ended it; it has what was done.
    """

    setup: InitialSetup
    num_seeds: int
    accounts: dict[str, list[WorkerAccount]]
    is_interrupted: bool = False

    @property
    def days(self) -> tuple[float, float]:
        """Days of a run, and days that the trace has after its end."""
        sequence = draw_events(self.setup.scenario, 1)
        return sequence.duration_s / 86400.0, sequence.cut_s / 86400.0

    @property
    def ratios(self) -> dict[str, Interval]:
        """Unicron's accumulated WAF divided by each policy's, from runs with the same seed."""
        ours = self.accounts.get(UNICRON, [])
        found = {}
        for name, accounts in self.accounts.items():
            if name == UNICRON or not ours or not all(each.waf > 0 for each in accounts):
                continue
            pairs = zip(ours, accounts, strict=True)
            found[name] = Interval.of([mine.waf / theirs.waf for mine, theirs in pairs])
        return found


def prepared(scenario: Scenario) -> InitialSetup:
    """Return the setup of a scenario's runs.

    Raises:
        RecordError: A value of the scenario can't be used.
    """
    return setup_of(scenario, draw_events(scenario, 1))


def run_campaign(
    setup: InitialSetup,
    policies: Sequence[str],
    num_seeds: int,
    on_progress: Callable[[float], None] = lambda _done: None,
) -> Campaign:
    """Run every policy with the seeds 1 to ``num_seeds``.

    After Ctrl-C the campaign has the seeds that all policies have finished; if there is none, the
    policies that have finished the first.

    Args:
        setup: The setup of every run.
        policies: Names from ``ALL_POLICIES``.
        num_seeds: Runs of each policy, 1 or more.
        on_progress: Called with the number of finished runs; a run that is half done counts 0.5.

    Raises:
        RecordError: A value of the scenario can't be used.
        KeyboardInterrupt: Ctrl-C came before any run was done.
    """
    jobs = [(name, seed) for seed in range(1, num_seeds + 1) for name in policies]
    found: dict[Job, WorkerAccount] = {}
    under_way: dict[Job, float] = {}

    def note(job: Job, done: float) -> None:
        under_way[job] = done
        on_progress(len(found) + sum(under_way.values()))

    is_interrupted = False
    runs = run_jobs(partial(_run_job, setup), jobs, note)
    try:
        for job, account in runs:
            assert isinstance(account, WorkerAccount)
            under_way.pop(job, None)
            found[job] = account
            on_progress(len(found) + sum(under_way.values()))
    except ProcessKilledError as error:
        raise RecordError(f"{setup.scenario.name}: {error}") from error
    except KeyboardInterrupt:
        if not found:
            raise
        is_interrupted = True
    finally:
        runs.close()
    return _campaign(setup, policies, num_seeds, found, is_interrupted=is_interrupted)


def _campaign(
    setup: InitialSetup,
    policies: Sequence[str],
    num_seeds: int,
    found: Mapping[Job, WorkerAccount],
    *,
    is_interrupted: bool,
) -> Campaign:
    """Return the campaign of the runs that are done; each policy in it has the same seeds."""
    seeds = range(1, num_seeds + 1)
    whole = [seed for seed in seeds if all((name, seed) in found for name in policies)]
    if not whole:
        whole = [min(seed for _, seed in found)]
    accounts = {
        name: [found[name, seed] for seed in whole]
        for name in policies
        if (name, whole[0]) in found
    }
    return Campaign(setup, len(whole), accounts, is_interrupted)


def _run_job(setup: InitialSetup, job: Job, on_progress: Callable[[float], None]) -> WorkerAccount:
    return run_policy(setup, *job, on_progress)


def run_policy(
    setup: InitialSetup,
    name: str,
    seed: int,
    on_progress: Callable[[float], None] = lambda _done: None,
) -> WorkerAccount:
    """Run a policy through the events of a seed; return the account.

    ``on_progress`` gets the fraction of the run that is done; baselines take too little time.
    """
    sequence = draw_events(setup.scenario, seed)
    if name in {UNICRON, APPROVED}:
        is_auto_heal = name == UNICRON
        return run_unicron(
            setup, sequence, seed, is_auto_heal=is_auto_heal, on_progress=on_progress
        )
    return run_baseline(BASELINES[name], setup, sequence, seed)
