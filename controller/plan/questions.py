"""Answers questions to a running controller, without the core: nothing is journaled.

The state is copied between two events, and a thread plans for the copy. So the answer is that of
one instant, and the controller's loop waits only for the copy. Replaying the journal, as for a
saved run, would take time in proportion to the length of the run.
"""

import json
from typing import assert_never

from pydantic import JsonValue

from controller.api.wire import AskWhatIf, DescribeCluster, Question, Reply
from controller.background import Failure, in_background
from controller.core.cluster_spec import ClusterSpec, present_spec
from controller.core.rehearsal import ImpossibleError, Supposition, snapshot
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.plan.rehearsal_answer import rehearsal_answer
from controller.store.run_file import encode_spec
from nodeagent.protocol.ids import NodeId, TaskId


async def answer(question: Question, state: ClusterState, policy: Policy, at: float) -> Reply:
    """Return the answer.

    Args:
        question: An operator's question.
        state: The core's state. The core may change it while the answer is computed.
        policy: The core's policy.
        at: Now, in seconds since the start of the run.
    """
    match question:
        case DescribeCluster():
            present = present_spec(state, policy)
            spec = await in_background(lambda: _described(present))
            if isinstance(spec, Failure):
                return _failed(question, spec)
            return Reply(request_id=question.request_id, is_ok=True, data={"spec": spec})
        case AskWhatIf():
            copied = snapshot(state)
            reply = await in_background(lambda: _what_if(question, copied, policy, at))
            return _failed(question, reply) if isinstance(reply, Failure) else reply
        case _:
            assert_never(question)


def _failed(question: Question, failure: Failure) -> Reply:
    text = f"the controller failed to compute the answer; please report this bug: {failure.text}"
    return Reply(request_id=question.request_id, is_ok=False, code="failed", message=text)


def _described(spec: ClusterSpec) -> JsonValue:
    described: JsonValue = json.loads(encode_spec(spec))
    return described


def _what_if(question: AskWhatIf, copied: ClusterState, policy: Policy, at: float) -> Reply:
    try:
        supposition, has_problem = supposition_of(question), question.has_problem
        data = rehearsal_answer(copied, policy, at, supposition, has_problem=has_problem)
    except ImpossibleError as error:
        return Reply(
            request_id=question.request_id, is_ok=False, code="impossible", message=str(error)
        )
    return Reply(request_id=question.request_id, is_ok=True, data=data)


def supposition_of(question: AskWhatIf) -> Supposition:
    """Return the question's supposed change in the core's own types."""
    return Supposition(
        lost=tuple(map(NodeId, question.lost)),
        added={NodeId(name): num for name, num in question.added.items()},
        num_added=question.num_added,
        weights={TaskId(name): weight for name, weight in question.weights.items()},
        finished=tuple(map(TaskId, question.finished)),
        faulted=tuple(map(TaskId, question.faulted)),
        keeps_running={TaskId(name): keeps for name, keeps in question.keeps_running.items()},
    )
