"""`unicron bootstrap` on real servers: nodes become ready, or each says what to do."""

import asyncio
import json
import os
import platform
import random
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from controller.bootstrap.fleet_steps import NodeOutcome, remove_all, start_all
from controller.bootstrap.node_facts import NodeFacts, NotReadyError, check_facts
from controller.bootstrap.wheel_cache import FetchError, fetch
from controller.core.events import NodeAttached, Observed
from controller.demo.playground import write_cluster_file
from controller.fleet.address import NodeAddress, SshTarget
from controller.fleet.bundle import build_bundle
from controller.fleet.node_connection import SshLogins
from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.ssh.openssh import OpenSsh
from controller.localcluster.ssh.ssh_server import log_path
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.observations import IterationCommitted, RankStarted
from tests.fakes.fake_rank import Script, launch
from tests.fakes.fleet_recorder import (
    FleetRecorder,
    address_of,
    running_fleet,
    without_template,
    write_python,
)
from tests.fakes.playgrounds import unicron

pytestmark = [
    pytest.mark.ssh,
    pytest.mark.skipif(OpenSsh.find() is None, reason="no sshd installed"),
]
N1 = NodeId("n1")
IS_ROOT = os.geteuid() == 0
SEED = 41
"""Of the instants at which a bootstrap is interrupted."""
VERSION = build_bundle().version
HARDENED = ("DisableForwarding yes", "MaxSessions 1")
FAKE_RANKS = ("--template-module", "tests.fakes.fake_template")


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster.start(2, 4, sshd_config=HARDENED) as cluster:
        yield cluster


async def bootstrapped(
    *addresses: NodeAddress, cache: Path = Path("/nowhere")
) -> dict[str, NodeOutcome]:
    async with SshLogins() as logins:
        return {each.node: each async for each in start_all(addresses, logins, 64, cache)}


async def removed(address: NodeAddress, *, is_forced: bool = False) -> NodeOutcome:
    async with SshLogins() as logins:
        [outcome] = [each async for each in remove_all([address], logins, 1, is_forced=is_forced)]
    return outcome


def wrapper(path: Path, lines: str) -> Path:
    """Make an interpreter that runs some lines of shell first."""
    path.write_text(f'#!/bin/sh\n{lines}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def status_of(state_dir: Path) -> Any:  # noqa: ANN401 - what the agent prints
    done = subprocess.run(
        [sys.executable, "-m", "nodeagent", "status", "--state-dir", str(state_dir)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


async def test_each_node_becomes_ready_or_says_what_to_do(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    good, other = map(without_template, cluster.nodes)
    bare = tmp_path / "bare"
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True
    )
    old = wrapper(
        tmp_path / "old",
        """[ "$1" = -c ] && echo '{"unicron_facts": {"python": [3, 9, 2], "machine": "x86_64", "packages": {}}}' && exit""",
    )
    broken = wrapper(tmp_path / "broken", 'echo "libpython3.so: not found" >&2; exit 1')
    mute = wrapper(tmp_path / "mute", '[ "$1" = -c ] || exit 7')
    (tmp_path / "file").touch()
    spoilt = {
        "stranger": replace(other, ssh=replace(other.ssh, user="nobody")),
        "nowhere": replace(other, python="/nowhere/python"),
        "old": replace(other, python=str(old)),
        "bare": replace(other, python=f"{bare}/bin/python", has_template=True),
        "wheelless": replace(other, python=f"{bare}/bin/python", has_template=False),
        "broken": replace(other, python=str(broken)),
        "mute": replace(other, python=str(mute)),
        "full": replace(other, state_dir=f"{tmp_path}/file/state"),
    }
    named = [replace(address, node=NodeId(name)) for name, address in spoilt.items()]
    outcomes = await bootstrapped(good, *named)
    assert [name for name, each in outcomes.items() if each.is_done] == ["n1"]
    assert outcomes["n1"].facts.startswith(f"Python {sys.version_info.major}.")
    says = {name: f"{each.text} | {each.advice}" for name, each in outcomes.items()}
    assert "the login as nobody with" in says["stranger"]
    assert "there is no interpreter /nowhere/python | name an interpreter" in says["nowhere"]
    assert "is Python 3.9.2 | the agent needs Python 3.11 or newer" in says["old"]
    assert "has no torch and no megatron-core | install it there:" in says["bare"]
    assert "-m pip install torch megatron-core" in says["bare"]
    assert "no wheels for Python" in says["wheelless"]
    assert "fetch them once: unicron bootstrap --fetch" in says["wheelless"]
    assert "does not run: libpython3.so: not found" in says["broken"]
    assert f"/{VERSION} on mute: exit status 7" in says["mute"]
    assert "file/state/agent: Not a directory; name another place as state_dir" in says["full"]
    assert all("\n" not in text for text in says.values())
    again = await bootstrapped(good)
    assert again["n1"].text == outcomes["n1"].text.replace("started", "runs already")


async def test_an_interpreter_without_pydantic_gets_wheels_that_last(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    bare, cache = tmp_path / "bare", tmp_path / "cache"
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True
    )
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = await asyncio.to_thread(list, fetch(cache, [python], [platform.machine()]))
    assert "wheels in" in lines[0]
    node = cluster.nodes[0]
    address = replace(without_template(node), python=f"{bare}/bin/python")
    outcomes = await bootstrapped(address, cache=cache)
    assert outcomes["n1"].is_done, outcomes
    [digest] = [path.name for path in (node.state_dir / "wheels").iterdir() if path.is_dir()]
    assert (node.state_dir / "wheels" / "current").read_text() == digest
    # The next agent is started by the controller's link, which knows of no wheels.
    os.kill(status_of(node.state_dir)["pid"], signal.SIGKILL)
    recorder = FleetRecorder()
    async with running_fleet([address], recorder):
        await recorder.event(NodeAttached)
    assert not recorder.notes


async def test_what_pip_can_not_find_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as refused:
        list(fetch(tmp_path, ["3.11"], ["pdp11"]))
    assert "for Python 3.11 on pdp11: ERROR:" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_interpreters_own_pydantic_has_to_be_new_enough() -> None:
    address = NodeAddress(N1, SshTarget("h", 22, "op"), "/state", "python3", 2, has_template=False)
    packages = {"pydantic": "2.8.1", "torch": "", "megatron-core": ""}
    with pytest.raises(NotReadyError, match="has pydantic 2") as refused:
        check_facts(NodeFacts((3, 12, 1), "x86_64", packages), address)
    assert "2.9 or newer" in refused.value.advice


def test_commands_alone_need_neither_torch_nor_megatron() -> None:
    address = NodeAddress(N1, SshTarget("h", 22, "op"), "/state", "python3", 2)
    facts = NodeFacts((3, 12, 1), "aarch64", {"pydantic": "2.9", "torch": "", "megatron-core": ""})
    check_facts(facts, replace(address, has_template=False))
    with pytest.raises(NotReadyError, match="has no torch and no megatron-core"):
        check_facts(facts, replace(address, has_template=True))


async def with_an_older_agent(address: NodeAddress, state_dir: Path) -> str:
    """Have an agent of other code run on the node; return the directory of its code."""
    await bootstrapped(address)
    code = state_dir / "agent"
    await asyncio.to_thread(shutil.copytree, code / VERSION, code / "older")
    words = [address.python, str(code / "older"), "start", "--state-dir", str(state_dir)]
    words += ["--node", "n1", "--num-workers", str(address.num_workers)]
    async with SshLogins() as logins, await logins.open(address) as connection:
        await connection.run(shlex.join(words), check=True)
    assert status_of(state_dir)["code_dir"] == str(code / "older")
    return str(code / "older")


@pytest.fixture
async def open_cluster() -> AsyncIterator[LocalCluster]:
    """A node with forwarding: there a link uses an older agent as it is."""
    async with LocalCluster.start(1, 1) as cluster:
        yield cluster


async def test_an_agent_of_other_code_is_replaced_and_its_ranks_live_on(
    open_cluster: LocalCluster, tmp_path: Path
) -> None:
    node = open_cluster.nodes[0]
    address = address_of(node, write_python(tmp_path / "python", *FAKE_RANKS))
    await with_an_older_agent(address, node.state_dir)
    recorder = FleetRecorder()
    async with running_fleet([address], recorder) as fleet:
        await recorder.event(NodeAttached)
        fleet.start_ranks(N1, [launch(Script())])
        started = await recorder.observed(RankStarted)
        await recorder.event(Observed, 3)
        outcomes = await bootstrapped(address)
        assert outcomes["n1"].text.startswith("replaces the agent that was process ")
        attached = await recorder.event(NodeAttached, 2)
        assert [rank.pid for rank in attached.ranks] == [started.pid]
    assert status_of(node.state_dir)["code_dir"] == str(node.state_dir / "agent" / VERSION)
    refused = await removed(address)
    assert (refused.is_done, refused.text) == (False, "1 rank(s) live there")
    assert "add --force" in refused.advice
    assert psutil.pid_exists(started.pid)
    done = await removed(address, is_forced=True)
    assert done.is_done
    assert not node.state_dir.exists()
    assert not psutil.pid_exists(started.pid)
    node.state_dir.mkdir()  # the local cluster removes it at its end


async def test_a_version_that_does_not_start_gives_way_to_the_one_before(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    node = cluster.nodes[0]
    older = await with_an_older_agent(without_template(node), node.state_dir)
    spoilt = wrapper(
        tmp_path / "spoilt",
        f'case "$1 $2" in *{VERSION}" start") echo "cannot allocate memory" >&2; exit 1;; esac',
    )
    outcomes = await bootstrapped(replace(without_template(node), python=str(spoilt)))
    assert not outcomes["n1"].is_done
    assert "cannot allocate memory" in outcomes["n1"].text
    assert status_of(node.state_dir)["code_dir"] == older


@pytest.mark.skipif(not IS_ROOT, reason="needs root, for a process namespace")
async def test_an_agent_that_ends_with_its_login_is_found_out(tmp_path: Path) -> None:
    ending = tmp_path / "ending"  # as KillUserProcesses=yes of systemd-logind does it
    ending.write_text(
        '#!/bin/sh\nexec unshare --pid --fork --kill-child sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    ending.chmod(0o755)
    async with LocalCluster.start(1, 1, sshd_config=(f"ForceCommand {ending}",)) as cluster:
        outcomes = await bootstrapped(without_template(cluster.nodes[0]))
    assert outcomes["n1"].text == "the agent ended with the login that started it"
    assert "loginctl enable-linger USER" in outcomes["n1"].advice


def command_line(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        unicron("bootstrap", str(path), *options), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("num", [4, pytest.param(20, marks=pytest.mark.thorough)])
async def test_the_command_shows_progress_and_a_table_and_can_be_interrupted(
    cluster: LocalCluster, tmp_path: Path, num: int
) -> None:
    path = write_cluster_file(tmp_path / "c", None, cluster.nodes)
    log = log_path(cluster.nodes[0])
    instants = random.Random(SEED)
    for delay_s in [instants.uniform(0, 1.5) for _ in range(num)]:
        num_logins = log.read_text().count("Accepted")
        process = await asyncio.create_subprocess_exec(
            *unicron("bootstrap", str(path)), stderr=asyncio.subprocess.PIPE
        )
        while log.read_text().count("Accepted") == num_logins:  # noqa: ASYNC110 - another program logs in
            await asyncio.sleep(0.02)
        await asyncio.sleep(delay_s)
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert process.returncode in {0, -signal.SIGINT, 130}
        assert b"Traceback" not in said
    done = await asyncio.to_thread(command_line, path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_ready"] == 2
    assert "[2/2] n" in done.stderr
    table = await asyncio.to_thread(command_line, path, "--nodes", "n2")
    assert "1 of 1 nodes: done" in table.stdout
    assert "runs already" in table.stdout
    gone = await asyncio.to_thread(command_line, path, "--remove")
    assert gone.returncode == 0, gone.stderr
    assert not (cluster.nodes[0].state_dir / "demo").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nodes", "n7"], "has no node n7"),
        (["--nodes", "n["], "brackets do not match"),
        (["--parallel", "0"], "is no number of nodes"),
        (["--force"], "--force belongs to --remove"),
    ],
)
async def test_wrong_options_touch_no_node(
    cluster: LocalCluster, tmp_path: Path, options: Sequence[str], words: str
) -> None:
    path = write_cluster_file(tmp_path / "c", None, cluster.nodes)
    done = await asyncio.to_thread(command_line, path, *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


IN_ITS_OWN_MOUNTS = """\
[ "$STAGE" ] || STAGE=inside exec unshare -m --propagation private "$0" "$@"
mount --bind {path} {path} && mount -o remount,bind,{option} {path} || exit 9
"""
"""Lines of an interpreter that finds ``path`` read-only, or no place for programs."""


def mounted(path: Path, place: Path, option: str) -> Path:
    return wrapper(path, IN_ITS_OWN_MOUNTS.format(path=place, option=option))


async def trains_an_iteration(address: NodeAddress) -> None:
    recorder = FleetRecorder()
    async with running_fleet([address], recorder) as fleet:
        await recorder.event(NodeAttached)
        fleet.start_ranks(N1, [launch(Script())])
        await recorder.observed(IterationCommitted)
    done = await removed(address, is_forced=True)
    assert done.is_done, done


@pytest.mark.skipif(not IS_ROOT, reason="needs root, for a mount namespace")
async def test_a_read_only_home_names_the_key_for_another_place(
    open_cluster: LocalCluster, tmp_path: Path
) -> None:
    home, scratch = tmp_path / "home", open_cluster.nodes[0].state_dir / "scratch"
    for each in (home, scratch):
        each.mkdir()
    inner = write_python(tmp_path / "inner", *FAKE_RANKS)
    python = tmp_path / "python"
    text = mounted(python, home, "ro").read_text().replace(sys.executable, str(inner))
    python.write_text(text)
    address = address_of(open_cluster.nodes[0], python)
    refused = await bootstrapped(replace(address, state_dir=f"{home}/state"))
    assert not refused["n1"].is_done
    assert "Read-only file system; name another place as state_dir" in refused["n1"].text
    elsewhere = replace(address, state_dir=str(scratch))
    outcomes = await bootstrapped(elsewhere)
    assert outcomes["n1"].is_done, outcomes
    await trains_an_iteration(elsewhere)


@pytest.mark.skipif(not IS_ROOT, reason="needs root, for a mount namespace")
@pytest.mark.skipif(Path(sys.prefix).is_relative_to("/tmp"), reason="the interpreter is in /tmp")
async def test_a_tmp_where_nothing_may_be_executed_does_no_harm(
    open_cluster: LocalCluster, tmp_path: Path
) -> None:
    inner = write_python(tmp_path / "inner", *FAKE_RANKS)
    python = tmp_path / "python"
    text = mounted(python, Path("/tmp"), "noexec").read_text()
    # The interpreter of this test lies in /tmp as well: it is run by the shell, which may read it.
    python.write_text(text.replace(f"exec {sys.executable}", f"exec sh {inner}"))
    address = address_of(open_cluster.nodes[0], python)
    outcomes = await bootstrapped(address)
    assert outcomes["n1"].is_done, outcomes
    await trains_an_iteration(address)


async def test_a_path_too_long_for_sockets_is_used_all_the_same(
    open_cluster: LocalCluster, tmp_path: Path
) -> None:
    address = replace(
        address_of(open_cluster.nodes[0], write_python(tmp_path / "python", *FAKE_RANKS)),
        state_dir=str(tmp_path / ("deep" * 25)),
    )
    outcomes = await bootstrapped(address)
    assert outcomes["n1"].is_done, outcomes
    await trains_an_iteration(address)
    assert not await asyncio.to_thread(Path(address.state_dir).exists)
