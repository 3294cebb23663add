"""What a rank that is a command finds in its environment, compared with torchrun itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import CommandPlace, RankLaunch
from nodeagent.rank.process.command_rank import environment
from nodeagent.rank.process.rendezvous_port import free_port
from profiles.command_task import SET_BY_AGENT, CommandTask
from profiles.layout import Layout

NUM_NODES, NUM_LOCAL = 2, 2
LIMIT_S = 120.0
SHOW = """
import json, os, pathlib, sys
own = {name: value for name, value in os.environ.items()}
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(own))
"""
INHERITED = {"HOME": "/", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
SAME_VALUE = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS",
)  # fmt: skip


def of_torchrun(directory: Path, port: int) -> dict[int, dict[str, str]]:
    """Return the environments of the workers of torchrun on two nodes, by rank."""
    script = directory / "show.py"
    script.write_text(SHOW)
    launchers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={NUM_NODES}"),
                *(f"--nproc-per-node={NUM_LOCAL}", f"--node-rank={node}", "--rdzv-id=mine"),
                *("--master-addr=127.0.0.1", f"--master-port={port}", "--rdzv-backend=static"),
                *(str(script), str(directory)),
            ],
            env=INHERITED,
        )
        for node in range(NUM_NODES)
    ]
    try:
        assert [each.wait(LIMIT_S) for each in launchers] == [0] * NUM_NODES
    finally:
        for each in launchers:
            each.kill()
            each.wait()
    ranks = range(NUM_NODES * NUM_LOCAL)
    return {rank: json.loads((directory / str(rank)).read_text()) for rank in ranks}


def of_unicron(rank: int, state_dir: Path, port: int) -> dict[str, str]:
    """Return the environment of the same rank as a command of Unicron's."""
    node, local_rank = divmod(rank, NUM_LOCAL)
    place = CommandPlace(
        command=CommandTask(argv=("python",)),
        local_rank=local_rank,
        local_workers=tuple(range(NUM_LOCAL)),
        master_address="127.0.0.1",
        node_rank=node,
        num_nodes=NUM_NODES,
    )
    launch = RankLaunch(
        task=TaskId("mine"),
        generation=Generation(1),
        global_rank=rank,
        worker=local_rank,
        layout=Layout(dp=NUM_NODES * NUM_LOCAL),
        command=place,
    )
    return environment(launch, INHERITED, state_dir, ("127.0.0.1", port))


def test_a_command_finds_all_that_torchrun_sets(tmp_path: Path) -> None:
    port = free_port()
    for rank, torchruns in of_torchrun(tmp_path, port).items():
        ours = of_unicron(rank, tmp_path, port)
        assert torchruns.keys() - ours.keys() == set()
        added = ours.keys() - torchruns.keys()
        assert all(name.startswith("UNICRON_") for name in added)
        assert {name: ours[name] for name in SAME_VALUE} == {
            name: torchruns[name] for name in SAME_VALUE
        }
        # Those whose value is a launcher's own: the meaning is compared.
        assert torchruns.keys() - INHERITED.keys() - {*SAME_VALUE} == {
            "TORCHELASTIC_MAX_RESTARTS",
            "TORCHELASTIC_ERROR_FILE",
            "TORCHELASTIC_USE_AGENT_STORE",
        }
        # torchrun listens on the port itself. Of a command rank 0 does, as without a launcher.
        uses = [found["TORCHELASTIC_USE_AGENT_STORE"] for found in (torchruns, ours)]
        assert uses == ["True", "False"]
        for found in (ours, torchruns):
            restarts = int(found["TORCHELASTIC_RESTART_COUNT"])
            assert restarts <= int(found["TORCHELASTIC_MAX_RESTARTS"])
            assert Path(found["TORCHELASTIC_ERROR_FILE"]).is_absolute()
        changeable = {*INHERITED, "TORCH_NCCL_ASYNC_ERROR_HANDLING"}
        assert torchruns.keys() - changeable <= SET_BY_AGENT
