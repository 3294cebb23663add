"""``unicron plan what-if`` on a cluster: of a running controller, or of a saved run.

A running controller answers from its memory. A saved run is replayed here. Both use
``controller.core.rehearsal``.
"""

import argparse
import getpass
import json
import sys
import uuid
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from controller.api.client import NoControllerError, ask
from controller.api.wire import AskWhatIf
from controller.clusterfile.controller_choice import (
    ChoiceError,
    choose_controller,
    refuse_without_controller,
)
from controller.core.rehearsal import ImpossibleError
from controller.plan.plan_text import explanation_of, print_answer
from controller.plan.problem_file import ProblemFile
from controller.plan.questions import supposition_of
from controller.plan.rehearsal_answer import rehearsal_answer
from controller.printing import plain_console, refuse
from controller.store.run_file import RunError, read_run
from profiles.records import RecordError


def run_on_cluster(arguments: argparse.Namespace) -> int:
    """Ask and print the answer.

    Returns:
        0; 2 if there is no answer or an option is wrong; 3 if no controller answers.
    """
    if arguments.save_problem and arguments.save_problem.exists():
        text = f"--save-problem {arguments.save_problem}: exists already; name another file"
        return refuse("unicron plan", text)
    question = _question(arguments)
    try:
        if arguments.state:
            answer = _of_saved(arguments.state, question)
        else:
            choose_controller(arguments)
            answer = _of_live(arguments.connect, question)
        problem = answer.pop("problem", None)
        if arguments.save_problem:
            _save(arguments.save_problem, problem)
    except NoControllerError as error:
        return refuse_without_controller("unicron plan", arguments, str(error))
    except (ImpossibleError, ChoiceError, RunError, RecordError) as error:
        return refuse("unicron plan", str(error))
    if arguments.explain:
        planner_problem = ProblemFile.model_validate(problem).planner_problem
        answer |= explanation_of(planner_problem, answer["assignments"])
    if arguments.json:
        sys.stdout.write(f"{json.dumps(answer)}\n")
    else:
        print_answer(answer)
        _print_places(answer)
    return 0


def _question(arguments: argparse.Namespace) -> AskWhatIf:
    return AskWhatIf(
        request_id=uuid.uuid4().hex,
        actor=getpass.getuser(),
        lost=tuple(arguments.lose_node),
        added=dict(arguments.add_node),
        num_added=arguments.add,
        weights=dict(arguments.weight),
        finished=tuple(arguments.finish),
        faulted=tuple(arguments.fault),
        keeps_running=dict(arguments.keeps_running),
        has_problem=arguments.explain or arguments.save_problem is not None,
    )


def _of_saved(directory: Path, question: AskWhatIf) -> dict[str, Any]:
    machine, replayed = read_run(directory)
    supposition, has_problem = supposition_of(question), question.has_problem
    return rehearsal_answer(
        machine.state, machine.policy, replayed.at, supposition, has_problem=has_problem
    )


def _of_live(path: Path, question: AskWhatIf) -> dict[str, Any]:
    reply = ask(path, question)
    if reply.code == "impossible":
        raise ImpossibleError(reply.message)
    if reply.data is None:
        raise NoControllerError(f"{path}: the controller gave no answer: {reply.message}")
    return dict(reply.data)


def _save(path: Path, problem: Any) -> None:  # noqa: ANN401 - a JSON object
    try:
        path.write_text(f"{json.dumps(problem, indent=1)}\n", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"--save-problem {path}: {(error.strerror or '').lower()}") from error


def _print_places(answer: dict[str, Any]) -> None:
    console = plain_console()
    for task in answer["tasks"]:
        before = _place(task["layout_before"], task["placement_before"])
        after = _place(task["layout"], task["placement"])
        console.print(f"{task['name']}: {before}" + (f" -> {after}" if before != after else ""))
    for name, phase in answer["left_alone"].items():
        console.print(f"{name}: is {phase}; no plan changes it now")
    for number, step in enumerate(answer["steps"], start=1):
        console.print(f"step {number}: {step}")


def _place(layout: str | None, workers: Iterable[str]) -> str:
    """Return a layout and the workers on each node, in short."""
    if layout is None:
        return "nowhere"
    by_node = groupby(workers, key=lambda worker: worker.rpartition(":")[0])
    places = [f"{node}:{','.join(w.rpartition(':')[2] for w in each)}" for node, each in by_node]
    return f"{layout} on {' '.join(places)}"
