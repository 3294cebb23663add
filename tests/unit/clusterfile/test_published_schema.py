"""The JSON schema: it is the one in docs, and takes what the reader takes."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from controller.clusterfile.cluster_reader import load_cluster
from controller.clusterfile.published_schema import cluster_schema

REPOSITORY = Path(__file__).parents[3]
SCHEMA = REPOSITORY / "docs" / "cluster.schema.json"
EXAMPLE = REPOSITORY / "examples" / "cluster.toml"


def test_the_schema_in_docs_is_the_one_of_the_code() -> None:
    written = json.loads(SCHEMA.read_text())
    assert written == cluster_schema(), (
        "run python -m controller.clusterfile.published_schema > docs/cluster.schema.json"
    )


def test_every_key_has_its_meaning() -> None:
    schema = cluster_schema()
    for name, definition in schema["$defs"].items():
        for key, each in definition.get("properties", {}).items():
            assert each.get("description") or "$ref" in each, f"{name}.{key}"


def test_the_example_is_read_and_is_valid_under_the_schema(folder: Path) -> None:
    cluster = load_cluster(EXAMPLE)
    assert [node.address.node for node in cluster.nodes] == [
        "gpu-001", "gpu-002", "gpu-003", "late-1",
    ]  # fmt: skip
    jsonschema.validate(tomllib.loads(EXAMPLE.read_text()), cluster_schema())
    tasks = (EXAMPLE.parent / "tasks.toml").read_text()
    jsonschema.validate({"cluster": {"name": "x"}, **tomllib.loads(tasks)}, cluster_schema())


@pytest.mark.parametrize(
    "text", ['[cluster]\nnam = "x"\n', '[cluster]\nname = "x"\n[ssh]\nport = "1"\n', "x = 1\n"]
)
def test_the_schema_refuses_unknown_keys_and_wrong_types(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), cluster_schema())


def test_the_page_shows_the_example() -> None:
    page = (REPOSITORY / "docs" / "cluster-file.md").read_text()
    shown = "".join(
        f"    {line}" if line.strip() else line for line in EXAMPLE.read_text().splitlines(True)
    )
    assert shown in page
