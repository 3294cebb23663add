"""Decisions about plans: ``unicron approve``, ``reject``, ``defer``, ``propose`` and ``resume``.

A decision names a plan and its revision, as in ``P-3:2``. So what an operator has not seen is never
applied: a newer event gives the plan a new revision, and the controller refuses the older one.
"""

import argparse
import sys
from typing import Final

from controller.api.views import PlanState, PlanView
from controller.api.wire import (
    ApproveCure,
    ApprovePlan,
    DeferPlan,
    RejectPlan,
    RequestPlan,
    ResumeAutomation,
)
from controller.arguments import duration_s
from controller.operate.asking import (
    EXIT_CODES,
    EXIT_CODES_OF_PLANS,
    EXIT_STALE,
    EXIT_UNKNOWN,
    RefusedError,
    add_common,
    complete_names,
    guarded,
    send,
    who_asks,
)
from controller.operate.explaining import plan_lines
from controller.operate.showing import newest_view
from controller.printing import refuse
from profiles.records import on_one_line

_TEXTS: Final = {
    "approve": """\
Apply a plan as of one revision. `unicron plans` lists what waits; `unicron explain P-3` says what it does, and why.
Without a revision the plan is shown, and you are asked. In a rehearsal (`unicron run --rehearse`) an incident is
approved: `unicron incidents --rehearsed` lists what waits.""",
    "reject": """\
Decline a plan as of one revision. The tasks stay as they are, and its incidents wait for an operator.
`unicron propose` asks for another plan.""",
    "defer": """\
A plan that is applied by itself (auto_after_s of [policy]) waits for so long from now on.""",
    "resume": """\
In a storm (storm_plans, storm_lost_share of [policy]) automation stops: each plan waits for an approval. This ends
that, and a plan that waits is applied as policy says.""",
    "propose": """\
Ask for a plan for the present state, for instance after a rejection. Tasks that were held take part, too.""",
}
_EXAMPLES: Final = {
    "approve": ("unicron approve P-3:2", "unicron approve P-3", "unicron approve I-7"),
    "reject": ("unicron reject P-3:2 --reason 'n4 is back in ten minutes'",),
    "propose": ("unicron propose",),
    "defer": ("unicron defer P-3:2 --for 10m",),
    "resume": ("unicron resume",),
}

_INCIDENT: Final = "I-"
"""How names of incidents begin."""

_ABOUT_NO_PLAN: Final[dict[str, type[RequestPlan | ResumeAutomation]]] = {
    "propose": RequestPlan, "resume": ResumeAutomation
}  # fmt: skip


def add_arguments(verb: str, parser: argparse.ArgumentParser) -> None:
    """Define the options of one of the commands."""
    exit_codes = EXIT_CODES if verb in _ABOUT_NO_PLAN else EXIT_CODES_OF_PLANS
    add_common(parser, _TEXTS[verb], _EXAMPLES[verb], exit_codes)
    if verb not in _ABOUT_NO_PLAN:
        plan = parser.add_argument(
            "plan", metavar="PLAN[:REVISION]", help="the plan that you have seen"
        )
        complete_names(plan, "waiting plan")
    if verb == "defer":
        parser.add_argument(
            "--for", type=duration_s, default=600.0, metavar="TIME", dest="for_s",
            help="for how long, as 90, 10m or 2h (default 10m)",
        )  # fmt: skip
    if verb == "reject":
        parser.add_argument("--reason", default="", help="why, for the record")


def run(arguments: argparse.Namespace) -> int:
    """Send the decision; return the exit code."""
    if arguments.command in _ABOUT_NO_PLAN:
        request_id, actor = who_asks()
        kind = _ABOUT_NO_PLAN[arguments.command]
        command = kind(request_id=request_id, actor=actor)
        return guarded(arguments, lambda: send(arguments, command))
    if arguments.command == "approve" and arguments.plan.startswith(_INCIDENT):
        return guarded(arguments, lambda: _approve_cure(arguments, arguments.plan))
    name, colon, revision = arguments.plan.partition(":")
    if not name or (colon and not (revision.isascii() and revision.isdecimal())):
        text = f"{arguments.plan}: write PLAN:REVISION, as `unicron plans` shows it"
        return refuse(f"unicron {arguments.command}", text)
    return guarded(arguments, lambda: _decide(arguments, name, int(revision) if colon else None))


def _approve_cure(arguments: argparse.Namespace, name: str) -> int:
    """Have the cure done that a rehearsal shows for an incident."""
    view = newest_view(arguments.connect)
    incident = next((each for each in view.incidents if each.id == name), None)
    if incident is None:
        raise RefusedError(f"there is no incident {name}", EXIT_UNKNOWN)
    if incident.rehearsed is None:
        raise RefusedError(f"{name} waits for no approval: no rehearsal has recorded it")
    request_id, actor = who_asks()
    action = incident.rehearsed.action
    return send(
        arguments,
        ApproveCure(request_id=request_id, actor=actor, incident=name, action=action),
    )


def _decide(arguments: argparse.Namespace, name: str, revision: int | None) -> int:
    if revision is None:
        revision = _confirmed_revision(arguments, name)
    request_id, actor = who_asks()
    if arguments.command == "approve":
        approval = ApprovePlan(request_id=request_id, actor=actor, plan=name, revision=revision)
        return send(arguments, approval)
    if arguments.command == "defer":
        deferral = DeferPlan(
            request_id=request_id, actor=actor, plan=name, revision=revision, for_s=arguments.for_s
        )
        return send(arguments, deferral)
    rejection = RejectPlan(
        request_id=request_id, actor=actor, plan=name, revision=revision, reason=arguments.reason
    )
    return send(arguments, rejection)


def _confirmed_revision(arguments: argparse.Namespace, name: str) -> int:
    """Show the newest revision of a plan and ask; return it if the user agrees.

    Raises:
        RefusedError: There is no such plan, it is decided, or the user does not agree.
    """
    view = newest_view(arguments.connect)
    plan = next((each for each in view.plans if each.id == name), None)
    if plan is None:
        raise RefusedError(f"there is no plan {name}", EXIT_UNKNOWN)
    if plan.state is not PlanState.PENDING:
        raise RefusedError(f"{name} is {plan.state} already{_by(plan)}", EXIT_STALE)
    if not sys.stdin.isatty():
        raise RefusedError(
            f"name the revision that you have seen: {name}:{plan.revision} is the newest", 2
        )
    sys.stderr.writelines(f"{on_one_line(line)}\n" for line in plan_lines(view, plan))
    sys.stderr.write(f"{arguments.command} {name}:{plan.revision}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise RefusedError("not confirmed: nothing was decided", 2)
    return plan.revision


def _by(plan: PlanView) -> str:
    return f" by {plan.approved_by}" if plan.approved_by else ""
