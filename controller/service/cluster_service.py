"""The controller of a cluster file as a service: it runs until it is stopped, and prints events."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from controller.alerts.notifier import Notifier
from controller.alerts.notify_tables import NotifyChannel
from controller.api.server import ApiSocketError
from controller.api.wire import SubmitTasks
from controller.check.fleet_check import check_shared
from controller.clock import SystemClock
from controller.clusterfile.cluster_reader import KNOWN_HOSTS_NAME, Cluster, load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.core.events import NodeRemoved, TaskRemoved
from controller.core.instructions import Level
from controller.core.rules.policy import Policy
from controller.core.specs import TaskSpec
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.error_groups import leaf_errors
from controller.fleet.agent_end import end_agents
from controller.fleet.host_keys import AcceptedKeys
from controller.fleet.node_connection import SshLogins
from controller.metrics.metrics_server import MetricsSource, address_text, serve_metrics
from controller.metrics.run_counters import RunCounters
from controller.server.cluster_config import (
    cluster_config,
    keep_workdirs,
    submitted_specs,
    take_workdirs,
)
from controller.server.controller_config import ControllerConfig
from controller.server.controller_server import ControllerServer, ServerPlaces
from controller.server.server_hooks import ServerHooks, SubmissionError
from controller.service.progress_bars import ProgressBars
from controller.store.journal import JournalError
from controller.store.run_file import JOURNAL_NAME, set_run_aside
from controller.workdirs.workdir_version import WorkdirError
from nodeagent.process_tools.service_manager import ServiceManager

EVENT_LOG_NAME: Final = "events.jsonl"
_SOURCE: Final = "unicron"
_AFTER_BUG_S: Final = 60.0
_LOG: Final = logging.getLogger(__name__)
_ITERATION_PAUSE_S: Final = 10.0
"""Iterations of a task are printed at most once in this time."""


class ClusterService:
    """One controller of a cluster file, in the foreground. ``run`` returns at its end.

    Args:
        cluster: The cluster file.
        event_log: Where to append every event; None for a file in the run directory.
        is_until_done: Whether to end when every task has finished.
        is_to_end: Whether to bring the cluster down, as soon as the controller runs.
        accepts_new: Whether to accept the host keys of nodes that no known_hosts file knows.
        overridden: Returns a file's policy with what options say instead.

    Attributes:
        is_down: Whether the cluster was brought down, on all nodes that are not lost.

    Raises:
        RunLockedError: Another controller runs this cluster.
        JournalError: The journal of the earlier controller can't be taken over.
        WorkdirError: A task's folder can't be copied to nodes.
        OSError: A file can't be written.
    """

    def __init__(
        self,
        cluster: Cluster,
        event_log: Path | None,
        *,
        is_until_done: bool = False,
        is_to_end: bool = False,
        accepts_new: bool = False,
        overridden: Callable[[Policy], Policy] = lambda policy: policy,
    ) -> None:
        self.is_down = False
        self._overridden = overridden
        self._is_to_end = is_to_end
        self._cluster = cluster
        self._is_until_done = is_until_done
        self._clock = SystemClock()
        self._end = asyncio.Event()
        self._manager = ServiceManager()
        self._end_reason = ""
        _make_private(cluster.run_dir)
        self._is_first = not (cluster.run_dir / JOURNAL_NAME).exists()
        totals = {task.name: task.num_iterations for task in cluster.tasks}
        self._keys = AcceptedKeys(
            cluster.run_dir / KNOWN_HOSTS_NAME, accepts_new, self._announce_key
        )
        self._progress = ProgressBars(totals, self._stamp, _ITERATION_PAUSE_S)
        self._counters = RunCounters()
        self._server = ControllerServer(
            cluster.name,
            self._config_of(cluster, {} if is_to_end else keep_workdirs(cluster)),
            ServerPlaces(
                cluster.run_dir,
                cluster.socket,
                event_log or cluster.run_dir / EVENT_LOG_NAME,
                is_resumed=True,
            ),
            self._clock,
            ServerHooks(
                observers=[self._progress, self._counters],
                read_tasks=self._read_tasks,
                read_config=self._read_config,
                may_shut_down=True,
            ),
        )

    async def run(self) -> None:
        """Serve until a signal, or until every task has finished if that is asked for.

        Raises:
            ApiSocketError: The socket can't be made.
            OSError: A file can't be written.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has SIGHUP ignored
                loop.add_signal_handler(number, self._stop, f"stopped by {number.name}")
        self._say(f"cluster {self._cluster.name} from {self._cluster.path}")
        try:
            async with asyncio.TaskGroup() as group:
                services = [
                    group.create_task(self._server.run()),
                    group.create_task(self._say_when_ready()),
                    group.create_task(self._watch_for_the_end()),
                    group.create_task(self._say_what_is_not_shared()),
                    group.create_task(self._serve_beside("notify", self._notify_people)),
                    group.create_task(self._serve_beside("metrics", self._serve_metrics)),
                    group.create_task(self._report_to_manager()),
                ]
                await self._end.wait()
                for service in services:
                    service.cancel()
        except* (ApiSocketError, JournalError, OSError) as errors:
            raise leaf_errors(errors)[0] from None
        finally:
            self._manager.stopping()
            self._progress.close()
        self._say_what_stays()

    def _config_of(self, cluster: Cluster, workdirs: Mapping[str, str]) -> ControllerConfig:
        config = cluster_config(cluster, cluster.policy, workdirs)
        return replace(config, accepted_keys=self._keys)

    def _read_config(self, *, is_dry_run: bool) -> ControllerConfig:
        """Read the cluster file anew.

        Raises:
            SubmissionError: It has mistakes, or says what no running controller can take.
        """
        before = self._cluster
        try:
            cluster = load_cluster(before.path)
            cluster = replace(cluster, policy=self._overridden(cluster.policy))
            if fixed := _why_not_live(before, cluster):
                raise SubmissionError(f"{before.path}: {fixed}")
            if is_dry_run:
                versions = {name: each.digest for name, each in take_workdirs(cluster).items()}
            else:
                versions = keep_workdirs(cluster)
        except (ClusterFileError, WorkdirError, OSError) as error:
            raise SubmissionError(str(error)) from error
        if not is_dry_run:
            self._cluster = cluster
        found = [*_channel_changes(before.channels, cluster.channels)]
        if before.metrics != cluster.metrics:
            where = f"at {address_text(cluster.metrics)}" if cluster.metrics else "nowhere"
            found.append(f"metrics are served {where}")
        return replace(self._config_of(cluster, versions), further_changes=found)

    def _read_tasks(self, submitted: SubmitTasks) -> list[TaskSpec]:
        path = Path(submitted.folder) / submitted.name
        return submitted_specs(self._cluster, path, submitted.text)

    def _stop(self, reason: str) -> None:
        self._end_reason = reason
        self._end.set()

    async def _say_when_ready(self) -> None:
        await self._server.is_ready.wait()
        path = self._cluster.path
        self._say(f"watch it: unicron-console --cluster {path}, or unicron status --cluster {path}")

    async def _say_what_is_not_shared(self) -> None:
        """Look once, at the first start: a task may lose its checkpoints where nodes share none."""
        if not self._is_first or self._is_to_end:
            return
        await self._server.is_ready.wait()
        names = {str(node.address.node) for node in self._cluster.nodes}
        async with SshLogins(self._keys) as logins:
            for finding in await check_shared(self._cluster, names, logins):
                if finding.level == "warning":  # a node that does not answer has its own event
                    self._server.note(_SOURCE, finding.line, "warning")

    async def _report_to_manager(self) -> None:
        """Report to systemd, where that runs this controller: ready, and then alive."""
        await self._server.is_ready.wait()
        self._manager.ready()
        self._manager.status(f"cluster {self._cluster.name} from {self._cluster.path}")
        while self._manager.alive_every_s is not None:
            self._manager.alive()
            await asyncio.sleep(self._manager.alive_every_s)

    async def _serve_beside(self, source: str, serve: Callable[[], Awaitable[None]]) -> None:
        """Serve what recovery does without: a bug there must not end the controller."""
        await self._server.is_ready.wait()
        while True:
            try:
                await serve()
            except Exception as error:  # noqa: BLE001 - whatever it is, training is worth more
                _LOG.exception("a service beside the controller failed: source=%s", source)
                text = f"stopped by a bug, please report it: {error!r}; tried again in a minute"
                self._server.note(source, text, "error")
            await asyncio.sleep(_AFTER_BUG_S)

    async def _notify_people(self) -> None:
        notifier = Notifier(
            self._cluster.path,
            self._cluster.run_dir,
            self._server.view,
            lambda: self._cluster.channels,
            partial(self._note, "notify"),
        )
        await notifier.run()

    async def _serve_metrics(self) -> None:
        await serve_metrics(
            MetricsSource(self._counters),
            lambda: self._cluster.metrics,
            self._server.view,
            partial(self._note, "metrics"),
        )

    def _note(self, source: str, text: str, is_warning: bool) -> None:
        self._server.note(source, text, "warning" if is_warning else "info")

    async def _watch_for_the_end(self) -> None:
        while not (self._is_until_done and self._is_done()):
            if self._server.is_closing or self._is_to_end:
                await self._end_cluster()
                return
            await self._server.next_change()
        self._stop("every task has finished")

    async def _end_cluster(self) -> None:
        """Stop the tasks, each with a checkpoint, then the agents; then the controller may end."""
        await self._server.is_ready.wait()
        self._server.note(_SOURCE, "the cluster is brought down: tasks are stopped", "info")
        for name in self._server.state.tasks:
            self._server.post(TaskRemoved(name))
        while not self._is_done():
            await self._server.next_change()
        lost = {
            name
            for name, node in self._server.state.nodes.items()
            if node.contact.condition is NodeCondition.LOST
        }
        # Without this the links would start the agents again.
        for node in self._server.state.nodes:
            self._server.post(NodeRemoved(node))
        while not all(
            node.contact.condition is NodeCondition.REMOVED
            for node in self._server.state.nodes.values()
        ):
            await self._server.next_change()
        has_failed = False
        addresses = [each.address for each in self._cluster.nodes]
        async for node, failure in end_agents(addresses, self._keys):
            text = "its agent has ended"
            level: Level = "info"
            if failure and node in lost:
                text, level = f"was lost, and nothing was ended there: {failure}", "warning"
            elif failure:
                text, level, has_failed = f"is not down: {failure}", "error", True
            self._server.note(node, text, level)
        self.is_down = not has_failed
        self._stop("the cluster is down" if self.is_down else "the cluster is not down everywhere")

    def _is_done(self) -> bool:
        tasks = self._server.state.tasks.values()
        return all(task.lifecycle.phase is TaskPhase.FINISHED for task in tasks)

    def _say_what_stays(self) -> None:
        self._say(f"the controller ends: {self._end_reason}")
        if self.is_down:
            set_run_aside(self._cluster.run_dir)
        elif not self._is_done():
            self._say(
                f"training continues; the next controller takes over: unicron run {self._cluster.path}"
            )

    def _announce_key(self, text: str) -> None:
        self._server.note(_SOURCE, text, "warning")

    def _say(self, text: str) -> None:
        self._progress.show(self._clock.now(), _SOURCE, text)

    def _stamp(self, at: float) -> str:
        """Return the local time of an event, for a log that is read days later."""
        moment = datetime.fromtimestamp(self._clock.started_wall_s + at, tz=None)  # noqa: DTZ006
        return moment.isoformat(sep=" ", timespec="seconds")


def _why_not_live(before: Cluster, after: Cluster) -> str:
    """Return what has changed that only another run can take; empty if nothing has."""
    fixed = {
        "name": (before.name, after.name),
        "run_dir": (before.run_dir, after.run_dir),
        "GPUs or none": (before.has_gpus, after.has_gpus),
    }
    changed = [name for name, (old, new) in fixed.items() if old != new]
    if not changed:
        return ""
    return (
        f"{', '.join(changed)} can't change while a controller runs: end it with unicron down first"
    )


def _channel_changes(
    before: tuple[NotifyChannel, ...], after: tuple[NotifyChannel, ...]
) -> Iterator[str]:
    """Yield what becomes of the channels; not where they lead, which may be a secret."""
    known, wanted = ({each.name: each for each in some} for some in (before, after))
    for name in sorted(known.keys() | wanted.keys()):
        if known.get(name) != wanted.get(name):
            what = "changed" if name in known.keys() & wanted.keys() else "added"
            yield f"channel {name}: {what if name in wanted else 'removed'}"


def _make_private(directory: Path) -> None:
    """Make a directory with mode 0700, unless it is there."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
