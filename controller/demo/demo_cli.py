"""``unicron demo``: a local cluster, real training, and the controller that recovers it.

Everything runs inside the cluster's context. So every end of the demo removes all processes and
files: the last iteration, a console, a signal, the time limit, or an error. A headless run prints
its outcome: what happened, as one JSON object, and whether it is a success.
"""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from controller.api.server import ApiSocketError
from controller.api.views import (
    ClusterView,
    IncidentView,
    NodeView,
    PlanView,
    TaskView,
    TransitionView,
)
from controller.clock import SystemClock
from controller.demo.demo_options import DemoOptions, OptionError, check
from controller.demo.demo_session import DemoSession
from controller.demo.kept_files import keep_files
from controller.demo.playground import serve_nodes
from controller.drills.drill_arguments import DrillArgumentError
from controller.error_groups import leaf_errors
from controller.localcluster.local_cluster import LocalCluster, LocalClusterError
from controller.logs.log_options import LogOptionError, log_options, logging_to
from controller.service.progress_bars import ProgressBars
from controller.settings.settings_file import SettingsError
from profiles.corpus import DataError
from profiles.task_profiles import ProfileError

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _EndedEarlyError(Exception):
    """A signal or the time limit ended the demo early. Carries the exit code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return the exit code: 0 success, 1 failure, 2 wrong options or drills."""
    try:
        options = check(arguments)
    except (OptionError, ProfileError, DataError, DrillArgumentError, SettingsError) as error:
        return _fail(2, error)
    demo = _Demo(options)
    try:
        with logging_to(log_options(arguments)):
            code = asyncio.run(demo.run())
    except LogOptionError as error:
        return _fail(2, error)
    except (LocalClusterError, ApiSocketError, OSError) as error:
        return _fail(1, error)
    if options.is_json and demo.final_view:
        json.dump(outcome_of(demo.final_view), sys.stdout)
        sys.stdout.write("\n")
    return code


def _fail(code: int, error: Exception) -> int:
    sys.stderr.write(f"unicron demo: {error}\n")
    return code


class _Demo:
    """One run of the demo."""

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._early_end: asyncio.Future[None] | None = None
        self.final_view: ClusterView | None = None
        """The view at the end, with every loss; None if training never began."""
        self._is_refused = False

    async def run(self) -> int:
        """Run until the end and return the exit code."""
        loop = asyncio.get_running_loop()
        self._early_end = loop.create_future()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._end_early, number)
        total = self._options.num_iterations
        progress = ProgressBars({profile.name: total for profile in self._options.profiles})
        failures: list[BaseException] = []
        has_succeeded = False
        try:
            async with asyncio.timeout(self._options.time_limit_s), asyncio.TaskGroup() as group:
                watch = group.create_task(self._wait_for_early_end(self._early_end))
                has_succeeded = await self._run_cluster(progress)
                watch.cancel()
        except* TimeoutError:
            limit_s = self._options.time_limit_s
            reason = f"stopped at the time limit, {limit_s:g} s" if limit_s else "a step timed out"
            failures.append(_EndedEarlyError(1, reason))
        except* (_EndedEarlyError, LocalClusterError, ApiSocketError, OSError) as errors:
            failures.extend(leaf_errors(errors))
        finally:
            progress.close()
        for failure in failures:
            if not isinstance(failure, _EndedEarlyError):
                raise failure
            progress.show(self._clock.now(), "demo", str(failure))
            return failure.code
        if self._is_refused:
            return 2
        return 0 if has_succeeded or not self._options.is_headless else 1

    def _end_early(self, number: signal.Signals) -> None:
        if self._early_end and not self._early_end.done():
            error = _EndedEarlyError(128 + number, f"ended by {number.name}")
            self._early_end.set_exception(error)

    async def _wait_for_early_end(self, early_end: asyncio.Future[None]) -> None:
        await early_end

    async def _run_cluster(self, progress: ProgressBars) -> bool:
        options = self._options

        def say(text: str) -> None:
            progress.show(self._clock.now(), "demo", text)

        async with LocalCluster.start(
            options.num_nodes,
            options.workers_per_node,
            base_port=options.base_port,
            sshd=options.sshd,
            network=options.network,
            sshd_config=options.sshd_config,
            progress=say,
        ) as cluster:
            if options.nodes_only is not None:
                await serve_nodes(options, options.nodes_only, cluster, say)
            session = DemoSession(options, cluster, self._clock, progress)
            is_kept = True
            try:
                has_succeeded = await session.run()
            finally:
                self._is_refused = session.is_refused
                self.final_view = session.view(max_losses=None)
                if options.keep is not None:
                    # Now, because the end of the cluster removes its directory.
                    is_kept = self._keep(options.keep, cluster, session.event_log, progress)
            return has_succeeded and is_kept

    def _keep(
        self, directory: Path, cluster: LocalCluster, event_log: Path | None, progress: ProgressBars
    ) -> bool:
        """Copy the files of the run, also after a signal; return whether all could be copied."""
        try:
            keep_files(directory, cluster.root, cluster.nodes, event_log)
        except OSError as error:
            progress.show(self._clock.now(), "demo", f"--keep {directory} is incomplete: {error}")
            return False
        progress.show(self._clock.now(), "demo", f"journal and logs are kept in {directory}")
        return True


def outcome_of(view: ClusterView) -> dict[str, JsonValue]:
    """Return the report that ``--json`` prints; times are seconds since the start."""
    return {
        "tasks": [_task(task) for task in view.tasks],
        "incidents": [_incident(incident) for incident in view.incidents],
        "plans": [_plan(plan) for plan in view.plans],
        "nodes": [_node(node) for node in view.nodes],
    }


def _node(node: NodeView) -> dict[str, JsonValue]:
    return {
        "node": node.node,
        "condition": node.condition.value,
        "isolated": node.isolated,
        "isolated_gpus": {
            str(each.worker): each.isolated for each in node.workers if each.isolated
        },
        "note": node.note,
        "asked_at": node.asked_at,
        "agent_rss_bytes": node.agent_rss_bytes,
    }


def _task(task: TaskView) -> dict[str, JsonValue]:
    layout = task.layout
    # As the API writes them: a loss that is not a number becomes text, which JSON can hold.
    losses = json.loads(task.model_dump_json(include={"losses"}))["losses"]
    return {
        "name": task.name,
        "workers": layout.tp * layout.pp * layout.dp if layout else 0,
        "layout": {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp} if layout else None,
        "iterations": task.iteration,
        "rerun_iterations": task.num_rerun_iterations,
        "unsupported": list(task.unsupported),
        "transition": _transition(task.transition) if task.transition else None,
        "losses": {str(iteration): losses[str(iteration)] for iteration in sorted(task.losses)},
    }


def _transition(transition: TransitionView) -> dict[str, JsonValue]:
    """Return the newest transition; ``actual_s`` of a step is null while it is not over."""
    return {
        "kind": transition.kind,
        "is_done": transition.is_done,
        "predicted_s": transition.predicted_s,
        "actual_s": transition.actual_s,
        "steps": [step.model_dump() for step in transition.steps],
    }


def _incident(incident: IncidentView) -> dict[str, JsonValue]:
    return {
        "id": incident.id,
        "task": incident.task,
        "node": incident.node,
        "nodes": list(incident.nodes),
        "rank": incident.rank,
        "status": incident.status,
        "severity": incident.severity,
        "method": incident.method,
        "action": incident.action,
        "state": incident.state.value,
        "reason": incident.reason,
        "evidence": list(incident.evidence),
        "is_drill": incident.is_drill,
        "fault_at": incident.fault_at,
        "detected_at": incident.detected_at,
        "decided_at": incident.decided_at,
        "acting_at": incident.acting_at,
        "resolved_at": incident.resolved_at,
        "recovery_s": incident.recovery_s,
        "recomputed_micro_batches": incident.recomputed_micro_batches,
        "saved_micro_batches": incident.saved_micro_batches,
        "state_source": incident.state_source,
        "resume": incident.resume,
    }


def _plan(plan: PlanView) -> dict[str, JsonValue]:
    assignments: dict[str, JsonValue] = dict(plan.assignments)
    before: dict[str, JsonValue] = dict(plan.assignments_before)
    return {
        "id": plan.id,
        "revision": plan.revision,
        "trigger": plan.trigger,
        "state": plan.state.value,
        "approved_by": plan.approved_by,
        "waf_before": plan.waf_before,
        "waf_after": plan.waf_after,
        "assignments_before": before,
        "assignments": assignments,
        "placement_before": {each.task: list(each.placement_before) for each in plan.changes},
        "placement_after": {each.task: list(each.placement_after) for each in plan.changes},
        "seen": plan.seen,
        "why": plan.why,
    }
