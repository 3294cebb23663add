"""Calls on a task's rendezvous store, from a rank through its agent to the controller.

They carry the operations of ``torch.distributed.Store``. The controller holds one table per task
and generation; agents only relay.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.protocol.ids import Generation, TaskId

StoreOperation = Literal[
    "set", "get", "add", "compare_set", "wait", "check", "delete_key", "num_keys", "append"
]


class StoreCall(BaseModel):
    """One operation on the store of (task, generation).

    ``values`` are base64. ``get`` and ``wait`` block in the controller until the keys exist or
    ``timeout_s`` has passed. ``call_id`` is unique per rank process and makes ``add``, ``append``
    and ``compare_set`` safe to repeat after a lost connection.

    ==============  =======================  ===============================  ==================
    operation       keys                     values                           reply
    ==============  =======================  ===============================  ==================
    set             one                      one                              nothing
    get             one                      none                             one value
    add             one                      none; ``amount``                 ``number``
    compare_set     one                      expected, desired                one value
    wait            any                      none                             nothing
    check           any                      none                             ``number`` (0 or 1)
    delete_key      one                      none                             ``number`` (0 or 1)
    num_keys        none                     none                             ``number``
    append          one                      one                              nothing
    ==============  =======================  ===============================  ==================
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    kind: Literal["store_call"] = "store_call"
    call_id: str
    task: TaskId
    generation: Generation
    operation: StoreOperation
    keys: list[str] = []
    values: list[str] = []
    amount: int = Field(default=0, ge=-(2**63), lt=2**63)
    timeout_s: float = 60.0


class StoreReply(BaseModel):
    """Result of a ``StoreCall``; ``error`` is None on success."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    kind: Literal["store_reply"] = "store_reply"
    call_id: str
    value: str | None = None
    number: int | None = None
    error: str | None = None
