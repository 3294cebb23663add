"""What the command line asks of a living agent on its own node, over ``agent.sock``.

Unlike ``Attach``, these do not open a session: a look at an agent must not throw its controller
out. Both ends come from one installation, so there is no version to agree on; an agent of other
code is recognised by its ``code_dir``.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from nodeagent.protocol.ids import AgentId, NodeId
from nodeagent.protocol.rank_status import RankStatus


class _LocalQuery(BaseModel):
    model_config = ConfigDict(frozen=True)


class AskStatus(_LocalQuery):
    """Ask for an ``AgentStatus``."""

    kind: Literal["ask_status"] = "ask_status"


class Leave(_LocalQuery):
    """Ask the agent to end, with or without its ranks and template; answered by ``AgentStatus``."""

    kind: Literal["leave"] = "leave"
    kill_ranks: bool


class AgentStatus(_LocalQuery):
    """What an agent says about itself."""

    kind: Literal["agent_status"] = "agent_status"
    node: NodeId
    agent_id: AgentId
    pid: int
    num_workers: int
    code_dir: str
    rss_bytes: int
    is_template_ready: bool
    has_controller: bool
    run_id: str | None
    term: int
    num_unacknowledged: int
    ranks: list[RankStatus]
    probes: dict[str, str] = {}
    """What each probe of the node does, in words."""
