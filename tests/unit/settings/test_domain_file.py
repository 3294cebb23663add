"""Failure domains in the settings file, and what is refused in them."""

from pathlib import Path

import pytest

from controller.settings.settings_file import SettingsError, load_failure_domains, load_policy
from nodeagent.protocol.ids import NodeId
from tests.fakes.text_files import settings_file

N1, N2, N3 = NODES = [NodeId("n1"), NodeId("n2"), NodeId("n3")]


def test_nodes_have_the_domain_that_names_them_and_others_none(tmp_path: Path) -> None:
    path = settings_file(
        tmp_path, '[failure_domains]\nrack-1 = ["n1", "n3"]\n[policy]\nrestarts = 5\n'
    )
    assert load_failure_domains(path, NODES) == {N1: "rack-1", N3: "rack-1"}
    assert load_policy(path).restarts == 5
    assert load_failure_domains(settings_file(tmp_path, ""), NODES) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('a = ["n4"]', "failure_domains.a: no node 'n4'; nodes: n1, n2, n3"),
        ("a = [[1]]", "failure_domains.a: no node [1]; nodes: n1, n2, n3"),
        ('a = "n1"', "failure_domains.a: 'n1' must be a list of nodes"),
        ('a = ["n1"]\nb = ["n1"]', "failure_domains.b: n1 is in a already; keep it in one domain"),
        ('"" = ["n1"]', "failure_domains.: the name is empty; give the domain a name"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_place(
    tmp_path: Path, text: str, says: str
) -> None:
    path = settings_file(tmp_path, f"[failure_domains]\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        load_failure_domains(path, NODES)
    assert str(caught.value) == f"{path}: {says}"
