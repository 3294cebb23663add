"""Runs several policies with the same seeds; each seed gives all policies the same faults."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.simulation.policies.baselines import BASELINES
from controller.simulation.policies.static_division import run_baseline
from controller.simulation.policies.unicron_core import run_unicron
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
    """

    setup: InitialSetup
    num_seeds: int
    accounts: dict[str, list[WorkerAccount]]

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
    on_progress: Callable[[int], None] = lambda _done: None,
) -> Campaign:
    """Run every policy with the seeds 1 to ``num_seeds``.

    Args:
        setup: The setup of every run.
        policies: Names from ``ALL_POLICIES``.
        num_seeds: Runs of each policy, 1 or more.
        on_progress: Called with the number of finished runs.

    Raises:
        RecordError: A value of the scenario can't be used.
    """
    jobs = [(name, seed) for seed in range(1, num_seeds + 1) for name in policies]
    found: dict[tuple[str, int], WorkerAccount] = {}
    for job, account in _all_runs(setup, jobs):
        found[job] = account
        on_progress(len(found))
    accounts = {name: [found[name, seed] for seed in range(1, num_seeds + 1)] for name in policies}
    return Campaign(setup, num_seeds, accounts)


def _all_runs(
    setup: InitialSetup, jobs: list[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], WorkerAccount]]:
    num_processes = min(len(jobs), len(os.sched_getaffinity(0)))
    if num_processes <= 1:
        for job in jobs:
            yield job, run_policy(setup, *job)
        return
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_ignore_interrupts)
    try:
        futures = {pool.submit(run_policy, setup, *job): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise RecordError(f"{setup.scenario.name}: a process was killed: {error}") from error
    finally:
        # After an interruption, do not wait for runs that have begun.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal; the parent ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_policy(setup: InitialSetup, name: str, seed: int) -> WorkerAccount:
    """Run a policy through the events of a seed; return the account."""
    sequence = draw_events(setup.scenario, seed)
    if name in {UNICRON, APPROVED}:
        return run_unicron(setup, sequence, seed, is_auto_heal=name == UNICRON)
    return run_baseline(BASELINES[name], setup, sequence, seed)
