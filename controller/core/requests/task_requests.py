"""Requests about tasks: submitted, stopped, started, ended, and given other limits."""

from dataclasses import replace
from typing import assert_never

from controller.core.events import TaskLimited, TaskOrdered, TaskSubmitted
from controller.core.lifecycle.start_stop import stop
from controller.core.membership.task_arrivals import add_task
from controller.core.planning.plans import propose
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.task_orders import OrderMark, changed_settings
from controller.core.state.task_records import Intent
from controller.core.state.turn import Turn


def order_task(turn: Turn, event: TaskOrdered) -> None:
    """Stop a task, let it run, end it, or put it out of sight."""
    task = _task_of(turn, event)
    if task is None:
        return
    if event.order == "archive":
        _archive(turn, event, task)
        return
    if task.lifecycle.phase is TaskPhase.FINISHED:
        turn.refuse(event.request_id, "nothing", f"{event.task} has finished")
        return
    match event.order:
        case "stop":
            _stop(turn, event, task)
        case "start":
            _start(turn, event, task)
        case "finish":
            _finish(turn, event, task)
        case _:
            assert_never(event.order)


def _stop(turn: Turn, event: TaskOrdered, task: TaskState) -> None:
    if not task.is_wanted:
        turn.refuse(event.request_id, "nothing", f"{event.task} {_ordered_out(task)} already")
        return
    task.orders.stop(event.actor, turn.at)
    turn.announce("info", "stopped", event.task, f"is stopped by {event.actor}")
    then = _end_ranks(turn, event, task, "stop")
    turn.answer(event.request_id, f"{event.task} is stopped{then}")


def _finish(turn: Turn, event: TaskOrdered, task: TaskState) -> None:
    if task.orders.finished is not None:
        turn.refuse(event.request_id, "nothing", f"{event.task} {_ordered_out(task)} already")
        return
    task.orders.finish(event.actor, turn.at)
    turn.announce("info", "finished", event.task, f"is ended by {event.actor}")
    then = _end_ranks(turn, event, task, "remove")
    turn.answer(event.request_id, f"{event.task} is finished{then}")


def _end_ranks(turn: Turn, event: TaskOrdered, task: TaskState, intent: Intent) -> str:
    """End the task's ranks after a checkpoint; return what follows, in words."""
    phase = task.lifecycle.phase
    is_graceful = phase is TaskPhase.RUNNING or (
        phase is TaskPhase.STOPPING and task.stopping.is_graceful
    )
    num_ranks = len(task.living_ranks)
    task.assignment.follow(None)
    stop(turn, task, is_graceful=is_graceful, intent=intent, note=f"{intent} by {event.actor}")
    if not num_ranks:
        return ""
    first = "finish the iteration, save a checkpoint and end" if is_graceful else "end"
    return f": its {num_ranks} ranks {first}"


def _start(turn: Turn, event: TaskOrdered, task: TaskState) -> None:
    if task.orders.finished is not None:
        turn.refuse(event.request_id, "nothing", f"{event.task} {_ordered_out(task)}")
    elif task.orders.stopped is not None:
        task.orders.start()
        turn.announce("info", "started", event.task, f"may run again, says {event.actor}")
        turn.want_plan(event.task, f"{event.actor} starts {event.task}")
        turn.answer(event.request_id, f"{event.task} starts once a plan gives it workers")
    elif task.lifecycle.phase is TaskPhase.HELD:
        seen = f"{event.actor} starts {event.task}"
        plan = propose(turn, trigger=event.task, seen=seen, tries=event.task)
        if plan is None:
            text = f"no plan would start {event.task}: {task.lifecycle.note}"
            turn.refuse(event.request_id, "nothing", text)
        else:
            turn.answer(event.request_id, f"{plan.name} starts {event.task}")
    else:
        why = f": {task.lifecycle.note}" if task.lifecycle.note else ""
        text = f"{event.task} is not stopped by anybody, it is {task.lifecycle.phase}{why}"
        turn.refuse(event.request_id, "nothing", text)


def _archive(turn: Turn, event: TaskOrdered, task: TaskState) -> None:
    if task.lifecycle.phase is not TaskPhase.FINISHED:
        text = (
            f"{event.task} is {task.lifecycle.phase}: finish it first, unicron finish {event.task}"
        )
        turn.refuse(event.request_id, "unfit", text)
        return
    task.orders.archive()
    turn.announce("info", "archived", event.task, f"is archived by {event.actor}")
    turn.answer(event.request_id, f"{event.task} is archived; its checkpoints stay")


def limit_task(turn: Turn, event: TaskLimited) -> None:
    """Give a task another weight, other sizes, or another claim to run."""
    task = _task_of(turn, event)
    if task is None:
        return
    if task.lifecycle.phase is TaskPhase.FINISHED:
        turn.refuse(event.request_id, "nothing", f"{event.task} has finished")
        return
    before = task.spec.limits
    asked = {
        name: getattr(event, name)
        for name in ("weight", "min_workers", "max_workers", "keeps_running")
        if getattr(event, name) is not None
    }
    if asked.get("max_workers") == 0:
        asked["max_workers"] = None
    after = replace(before, **asked)
    most = after.max_workers
    sizes = [
        size
        for size in task.spec.table.sizes
        if size >= after.min_workers and (most is None or size <= most)
    ]
    if not sizes:
        known = ", ".join(map(str, task.spec.table.sizes))
        to = "" if most is None else f" to {most}"
        text = f"{event.task} has no size from {after.min_workers}{to}: {known} are listed"
        turn.refuse(event.request_id, "impossible", text)
        return
    changed = changed_settings(before, after)
    if not changed:
        turn.refuse(event.request_id, "nothing", f"{event.task} has these limits already")
        return
    task.limit(after, OrderMark(event.actor, turn.at))
    words = ", ".join(f"{name} {_value(getattr(after, name))}" for name in sorted(changed))
    text = f"{event.actor} gives it {words}"
    turn.announce("info", "limits", event.task, text)
    turn.answer(event.request_id, f"{event.task} has {words} from now on")
    if task.is_wanted:
        turn.want_plan(event.task, f"{event.task} has {words}")


def _value(value: object) -> str:
    match value:
        case None:
            return "unlimited"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def submit_tasks(turn: Turn, event: TaskSubmitted) -> None:
    """Take further tasks in. They are queued until a plan gives them workers."""
    for spec in event.specs:
        former = turn.state.tasks.get(spec.task)
        if former is not None and not former.has_left:
            text = f"there is a task {spec.task} already: it is {former.lifecycle.phase}"
            turn.refuse(event.request_id, "exists", text)
            return
    for spec in event.specs:
        add_task(turn, spec)
        turn.state.tasks[spec.task].orders.submit(event.actor, turn.at)
    told = ", ".join(f"{spec.task} for {spec.workers} workers" for spec in event.specs)
    turn.answer(event.request_id, f"queued: {told}; a plan decides")


def _ordered_out(task: TaskState) -> str:
    orders = task.orders
    if orders.finished is not None:
        return f"was ended by {orders.finished.actor}"
    return f"was stopped by {orders.stopped.actor}" if orders.stopped else "was removed"


def _task_of(turn: Turn, event: TaskOrdered | TaskLimited) -> TaskState | None:
    task = turn.state.tasks.get(event.task)
    if task is None or task.has_left:
        there = [name for name, each in turn.state.tasks.items() if not each.has_left]
        exist = f"{', '.join(there)} exist" if there else "there is none at all"
        turn.refuse(event.request_id, "unknown", f"there is no task {event.task}: {exist}")
        return None
    return task
