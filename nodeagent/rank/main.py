"""One rank from its first instruction to its exit code.

Link to the agent, device, rendezvous, model, newest checkpoint, training. A clean end (stopped or
finished) is reported and exits with 0. An exception is reported too, and then the rank waits: it
can't know whether it is the culprit or heard the echo of a peer's death, and its process may still
be of use. The agent ends it with SIGKILL when the controller has decided.
"""

import logging
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Final

import torch

from nodeagent.clock import SystemClock
from nodeagent.protocol.local import RankHello
from nodeagent.protocol.observations import RankDone
from nodeagent.protocol.training import RankLaunch
from nodeagent.rank.faults import describe
from nodeagent.rank.link import ControlLink
from nodeagent.rank.parallel import Place, form_groups
from nodeagent.rank.process import set_process_name
from nodeagent.rank.shim import prepare_device
from nodeagent.rank.store import AgentStore
from nodeagent.rank.train import Clocks, Training

logger = logging.getLogger(__name__)

_CLOCK: Final = SystemClock()
_STORED_TIMEOUT_S: Final = 30.0
_VERDICT_TIMEOUT_S: Final = 120.0


class LaunchError(ValueError):
    """The launch contradicts itself: the layout fits neither the model nor the global batch."""


def run_rank(state_dir: Path, launch: RankLaunch) -> int:
    """Train as the rank ``launch`` in this process and return its exit code.

    Exactly one of ``RankDone`` (then 0) and ``RankRaised`` (then 1, unless killed before) is
    reported.
    """
    _settle(launch)
    hello = RankHello(
        task=launch.task,
        generation=launch.generation,
        global_rank=launch.global_rank,
        pid=os.getpid(),
    )
    link = ControlLink(state_dir / "ranks.sock", hello, _CLOCK.wall_s)
    link.start()
    rank = _Rank(state_dir, launch, link)
    try:
        done = rank.train()
    except Exception as error:  # noqa: BLE001 - whatever ends training is reported, never guessed at
        traceback.print_exc()
        link.report(describe(error, launch, rank.iteration))
        link.wait_until_stored(_STORED_TIMEOUT_S)
        logger.info("waiting for the verdict")
        _wait_s(_VERDICT_TIMEOUT_S)
        return 1
    link.report(done)
    is_stored = link.wait_until_stored(_STORED_TIMEOUT_S)
    logger.info("%s after iteration %d, stored: %s", done.reason, done.iteration, is_stored)
    link.close()
    return 0


class _Rank:
    """The parts of a running rank, in the order in which they come to life."""

    def __init__(self, state_dir: Path, launch: RankLaunch, link: ControlLink) -> None:
        self._socket_path = state_dir / "ranks.sock"
        self._launch = launch
        self._link = link
        self._training: Training | None = None

    @property
    def iteration(self) -> int:
        """The iteration that runs, for the report about an exception."""
        return self._training.iteration if self._training is not None else 0

    def train(self) -> RankDone:
        launch = self._launch
        began = _CLOCK.monotonic_s()
        _check(launch)
        device = prepare_device(launch.backend, launch.worker, launch.training.seed)
        place = Place(launch.global_rank, launch.layout, device)
        store = AgentStore(
            self._socket_path,
            launch.task,
            launch.generation,
            caller=f"{launch.global_rank}.{os.getpid()}",
            monotonic_s=_CLOCK.monotonic_s,
        )
        form_groups(store, place, launch.backend)
        formed = _CLOCK.monotonic_s()
        clocks = Clocks(_CLOCK.monotonic_s, _wait_s)
        self._training = Training(launch, place, self._link, clocks)
        self._training.resume(store)
        logger.info(
            "%s: groups formed in %.3f s, ready in %.3f s, %d store calls",
            launch.layout,
            formed - began,
            _CLOCK.monotonic_s() - began,
            store.num_calls,
        )
        reason = self._training.run()
        return RankDone(
            task=launch.task,
            generation=launch.generation,
            global_rank=launch.global_rank,
            iteration=self._training.iteration,
            reason=reason,
        )


def _settle(launch: RankLaunch) -> None:
    set_process_name(f"ur:{launch.task}/{launch.global_rank}")
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for noisy in ("megatron", "torch"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    warnings.simplefilter("ignore")
    # After the fork: the pool of threads belongs to this process and is as small as can be.
    torch.set_num_threads(1)


def _check(launch: RankLaunch) -> None:
    layout, training = launch.layout, launch.training
    if launch.global_rank >= layout.num_workers:
        raise LaunchError(f"rank {launch.global_rank} of a world of {layout.num_workers}")
    misfit = training.model.misfit(layout)
    if misfit is not None:
        raise LaunchError(misfit)
    if training.num_micro_batches % layout.dp:
        raise LaunchError(
            f"num_micro_batches {training.num_micro_batches} is not a multiple of dp {layout.dp}"
        )


def _wait_s(duration_s: float) -> None:
    if duration_s > 0:
        time.sleep(duration_s)
