"""Which controller a command asks."""

import argparse
from pathlib import Path

import pytest

from controller.clusterfile.controller_choice import ChoiceError, add_choice, choose_controller


def chosen(*words: str, **environment: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_choice(parser)
    arguments = parser.parse_args(words)
    choose_controller(arguments, environment)
    return arguments


def write(path: Path, name: str) -> Path:
    path.write_text(f'[cluster]\nname = "{name}"\nrun_dir = "runs/{name}"\n')
    return path


def test_the_option_outweighs_the_environment_and_that_the_file_here(folder: Path) -> None:
    for name in ("given", "named", "cluster"):
        write(folder / f"{name}.toml", name)
    assert chosen("--connect", "x.sock", UNICRON_CLUSTER="named.toml").connect == Path("x.sock")
    given = chosen("--cluster", "given.toml", UNICRON_CLUSTER="named.toml")
    assert given.connect == folder / "runs" / "given" / "api.sock"
    named = chosen(UNICRON_CLUSTER="named.toml")
    assert (named.cluster, named.connect) == (Path("named.toml"), folder / "runs/named/api.sock")
    assert chosen().connect == folder / "runs" / "cluster" / "api.sock"
    assert chosen(UNICRON_CLUSTER="").connect == folder / "runs" / "cluster" / "api.sock"


def test_nothing_that_names_a_cluster_is_told_how_to(folder: Path) -> None:
    with pytest.raises(ChoiceError, match="give --cluster FILE, set UNICRON_CLUSTER, or run it"):
        chosen()


def test_mistakes_elsewhere_in_the_file_do_not_matter(folder: Path) -> None:
    path = folder / "cluster.toml"
    path.write_text('[cluster]\nname = "a"\n[[nodes]]\nnonsense = 1\n[polcy]\n')
    assert chosen().connect == Path("/state/unicron/a/api.sock")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[cluster]\nnam = 'a'\n",
            "cluster.toml:2: cluster: unknown key nam; did you mean 'name'?",
        ),
        ("[ssh]\n", "cluster.toml:1: cluster: name is missing"),
        ("[cluster\n", "cluster.toml:1: not valid TOML"),
    ],
)
def test_a_file_without_a_name_is_one_line(folder: Path, text: str, told: str) -> None:
    (folder / "cluster.toml").write_text(text)
    with pytest.raises(ChoiceError) as refused:
        chosen()
    assert str(refused.value).startswith(told)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(folder: Path) -> None:
    with pytest.raises(ChoiceError, match=r"^no\.toml: there is no such file; check the path$"):
        chosen("--cluster", "no.toml")
