"""The JSON schema of cluster files: editors complete keys by it and show what they mean.

    python -m controller.clusterfile.published_schema > docs/cluster.schema.json

It is made from the classes that read the file, and from the meanings in their docstrings. The
reader checks more, for instance that tasks fit the nodes.
"""

import inspect
import json
import re
import sys
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from controller.alerts.notify_tables import NotifyTable
from controller.clusterfile.cluster_keys import ClusterSection, NodesSection, SshSection
from controller.core.rules.approval import ApprovalRule
from controller.core.rules.policy import Policy
from controller.settings.approval_tables import ApprovalTable
from profiles.command_task import CommandTask
from profiles.layout import Layout
from profiles.model import ModelShape
from profiles.task_profiles import TaskProfile
from profiles.throughput import ThroughputPoint, ThroughputTable
from profiles.training_program import Program

_SECTIONS: Final[dict[str, type]] = {
    "cluster": ClusterSection,
    "ssh": SshSection,
    "nodes": NodesSection,
    "policy": Policy,
    "approval": ApprovalTable,
    "notify": NotifyTable,
    "task": TaskProfile,
}
_DESCRIBED: Final[tuple[type, ...]] = (
    *_SECTIONS.values(), CommandTask, Layout, ModelShape, Program, ThroughputPoint, ThroughputTable,
)  # fmt: skip
_ARRAYS: Final = frozenset({"approval", "nodes", "notify", "task"})
_FILES: Final = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Further files with [[nodes]], [[task]], [policy], [[approval]], [[notify]] and [failure_domains].",
}
_DOMAINS: Final = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "string"}},
    "description": "Nodes that fail together, by the name of their rack or switch.",
}
_TABLE_FILE: Final = {"type": "string", "description": "A table to take T(t, x) from."}


def cluster_schema() -> dict[str, Any]:
    """Return the schema of a cluster file, JSON schema draft 2020-12."""
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {"include": _FILES, "failure_domains": _DOMAINS}
    for key, kind in _SECTIONS.items():
        schema = TypeAdapter(kind).json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        definitions[kind.__name__] = schema
        reference = {"$ref": f"#/$defs/{kind.__name__}"}
        properties[key] = {"type": "array", "items": reference} if key in _ARRAYS else reference
    for kind in _DESCRIBED:
        _describe(definitions[kind.__name__], kind)
    table = definitions[ThroughputTable.__name__]
    table["properties"]["file"] = _TABLE_FILE
    table.pop("required")  # the points, or the file
    definitions[Policy.__name__]["additionalProperties"] = False
    definitions[Policy.__name__]["properties"].pop("approvals")  # tables of their own
    definitions.pop(ApprovalRule.__name__)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "Unicron cluster file",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "required": ["cluster"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _describe(schema: dict[str, Any], kind: type) -> None:
    """Put the meanings of a class's docstring, and of its bases', into its schema."""
    texts = [inspect.getdoc(each) or "" for each in kind.__mro__ if each is not object]
    schema["description"] = texts[0].partition("\n")[0]
    for text in reversed(texts):
        entries = text.partition("Attributes:\n")[2]
        for name, words in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", entries, re.MULTILINE):
            if name in schema["properties"]:
                meaning = " ".join(words.split()).replace("``", "`")
                schema["properties"][name]["description"] = meaning


def main() -> None:
    """Print the schema."""
    json.dump(cluster_schema(), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
