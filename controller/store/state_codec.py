"""The core's state as JSON, and back.

What the core remembers is dataclasses, so the fields with their types are the format. A field that
a newer version adds has a default, and one that it drops is passed over, so most states of an older
version can be read. Two things need more than the types: nodes share the cluster's index, and a
measured run points at one of the sizes of its measurement.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

import numpy as np
from cattrs import Converter, override
from cattrs.errors import BaseValidationError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn
from cattrs.strategies import configure_tagged_union
from pydantic import BaseModel, ValidationError

from controller.core.machine import Machine, MachineMarks
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.core.state.node import Contact, NodeMembership
from controller.core.state.node_index import NodeIndex
from controller.core.state.phases import NodeCondition
from controller.core.state.upkeep import NodeUpkeep
from controller.core.timers import Timer
from controller.store.replay import ReplayedRun
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Status
from profiles.faults.status_table import named

Json = Any
"""What ``json`` reads and writes."""


class StateError(Exception):
    """A state can't be read: it is of another version. The text says what does not fit."""


@dataclass(frozen=True)
class Takeover:
    """All that a controller takes over: what the machine has, and the run around it."""

    run: ReplayedRun
    marks: MachineMarks
    policy: Policy
    state: ClusterState

    def machine(self) -> Machine:
        """Return the machine that this was taken from."""
        return Machine.restored(self.state, self.policy, self.marks)


def encode_state(saved: Takeover) -> Json:
    """Return a state as JSON. It shares nothing with the state."""
    return _CONVERTER.unstructure(saved, Takeover)


def decode_state(data: Json) -> Takeover:
    """Return the state in ``data``.

    Raises:
        StateError: It is of a version that differs too much.
    """
    try:
        saved = _CONVERTER.structure(data, Takeover)
    except (BaseValidationError, ValidationError, TypeError, ValueError, KeyError) as error:
        raise StateError(_reason(error)) from error
    _rejoin(saved.state)
    return saved


def _reason(error: BaseException) -> str:
    """Return the first and innermost reason."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    notes = getattr(error, "__notes__", ())
    return "; ".join([f"{type(error).__name__}: {error}".splitlines()[0], *map(str, notes)])


def _rejoin(state: ClusterState) -> None:
    """Have records share again what they shared."""
    for node in state.nodes.values():
        node.join_index(state.index)
    measurement = state.measurements.current
    if measurement is not None:
        measurement.rejoin_run()


def _is_class(kind: object, of: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, of)


def _is_mapping_by_values(kind: object) -> bool:
    """Return whether a type is a mapping whose keys are no text: JSON has none."""
    if get_origin(kind) not in {dict, Mapping}:
        return False
    key = get_args(kind)[0]
    key = getattr(key, "__supertype__", key)
    return key is not str and get_origin(key) is not Literal


def _is_array(kind: object) -> bool:
    origin: object = get_origin(kind)
    return origin is np.ndarray


def _make_converter() -> Converter:
    converter = Converter(unstruct_collection_overrides={set: sorted, frozenset: sorted})
    # Records that agents have sent, and tables: pydantic knows how.
    converter.register_unstructure_hook_func(
        lambda kind: _is_class(kind, BaseModel),
        lambda model: model.model_dump(mode="json", exclude_defaults=True),
    )
    converter.register_structure_hook_func(
        lambda kind: _is_class(kind, BaseModel), lambda data, kind: kind.model_validate(data)
    )
    converter.register_unstructure_hook(Status, str)
    converter.register_structure_hook(Status, lambda data, _: named(data))
    converter.register_unstructure_hook(NodeId | Worker, list_of_worker)
    converter.register_structure_hook(
        NodeId | Worker, lambda data, _: data if isinstance(data, str) else Worker(*data)
    )
    converter.register_unstructure_hook_func(_is_array, lambda array: array.tolist())
    converter.register_structure_hook_func(
        _is_array,
        lambda data, kind: np.array(data, dtype=get_args(get_args(kind)[1])[0]),
    )
    configure_tagged_union(Timer, converter)
    _register_mappings(converter)
    _register_index(converter)
    return converter


def list_of_worker(one: NodeId | Worker) -> Json:
    """Return a node as text, and a worker as a list."""
    return list(one) if isinstance(one, Worker) else one


def _register_mappings(converter: Converter) -> None:
    def unstructured(kind: type) -> Callable[[Mapping[object, object]], Json]:
        key, value = get_args(kind)
        return lambda mapping: [
            [converter.unstructure(k, key), converter.unstructure(v, value)]
            for k, v in mapping.items()
        ]

    def structured(kind: type) -> Callable[[Json, type], dict[object, object]]:
        key, value = get_args(kind)
        return lambda data, _: {
            converter.structure(k, key): converter.structure(v, value) for k, v in data
        }

    converter.register_unstructure_hook_factory(_is_mapping_by_values, unstructured)
    converter.register_structure_hook_factory(_is_mapping_by_values, structured)


def _register_index(converter: Converter) -> None:
    """The index is the cluster's: nodes get it back when the state is whole again."""
    for kind in (Contact, NodeMembership, NodeUpkeep):
        converter.register_unstructure_hook(
            kind, make_dict_unstructure_fn(kind, converter, index=override(omit=True))
        )
        converter.register_structure_hook(
            kind, make_dict_structure_fn(kind, converter, index=override(omit=True))
        )
    sets = ("silent", "leaving", "upkeep", "seldom_tried")
    converter.register_unstructure_hook(
        NodeIndex,
        lambda index: {
            "names": index.names,
            "by_condition": {str(key): list(nodes) for key, nodes in index.by_condition.items()},
            **{name: list(getattr(index, name)) for name in sets},
        },
    )
    converter.register_structure_hook(
        NodeIndex,
        lambda data, _: NodeIndex(
            data["names"],
            {
                NodeCondition(key): dict.fromkeys(nodes)
                for key, nodes in data["by_condition"].items()
            },
            **{name: dict.fromkeys(data.get(name, ())) for name in sets},
        ),
    )


_CONVERTER: Final = _make_converter()
