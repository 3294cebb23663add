"""Runs jobs in processes of their own, and passes on how far each one is.

Every process has a pipe, and there is no queue: a process pool's semaphores would be reported as
leaked if the command is ended.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from controller.python_settings import collect_seldom

Job = tuple[str, int]
"""A policy and a seed."""
RunJob = Callable[[Job, Callable[[float], None]], object]
"""Runs a job, and reports the fraction that is done. It must be importable."""

_STEP = 0.01
"""Progress is passed on in steps of this fraction."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """The fraction of a job that is done."""

    done: float


class ProcessKilledError(Exception):
    """A process ended before its job did."""


def run_jobs(
    run: RunJob, jobs: Sequence[Job], on_progress: Callable[[Job, float], None]
) -> Generator[tuple[Job, object], None, None]:
    """Yield each job with its result, as they end.

    If the caller stops, for instance after Ctrl-C, all processes are killed at once.

    Raises:
        ProcessKilledError: A process was killed.
        Exception: What a job raised.
    """
    num_processes = min(len(jobs), len(os.sched_getaffinity(0)))
    if num_processes <= 1:
        for job in jobs:
            yield job, run(job, lambda done, job=job: on_progress(job, done))  # type: ignore[misc]
        return
    waiting = list(reversed(jobs))
    context = multiprocessing.get_context("forkserver")
    processes, running = [], dict[Connection, Job]()
    try:
        for _ in range(num_processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(run, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            running[ours] = waiting.pop()
            ours.send(running[ours])
        while running:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                job = running[ready]
                value = _received(ready, job)
                if isinstance(value, _Progress):
                    on_progress(job, value.done)
                    continue
                if isinstance(value, Exception):
                    raise value
                del running[ready]
                if waiting:
                    running[ready] = waiting.pop()
                    ready.send(running[ready])
                yield job, value
    finally:
        for process in processes:
            process.kill()


def _received(connection: Connection, job: Job) -> object:
    try:
        return connection.recv()
    except (EOFError, OSError) as error:
        raise ProcessKilledError(f"the process of {job[0]}, seed {job[1]}, was killed") from error


def _work(run: RunJob, connection: Connection) -> None:
    """Run jobs until the parent closes the pipe. Ctrl-C reaches the parent, which ends this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_seldom()
    with suppress(EOFError, OSError):
        while True:
            job: Job = connection.recv()
            connection.send(_outcome(run, job, connection))


def _outcome(run: RunJob, job: Job, connection: Connection) -> object:
    """Return the result of a job, or the exception that it raised."""
    passed_on = 0.0

    def report(done: float) -> None:
        nonlocal passed_on
        if done >= passed_on + _STEP:
            passed_on = done
            connection.send(_Progress(done))

    try:
        return run(job, report)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - raised again in the parent
        return error
