"""The alternatives and their settings: what is started for a run.

``default`` follows the alternative's documentation, ``tuned`` what its options allow for a fast
recovery at this size. None of them may look up host names: that costs seconds on some machines and
says nothing about recovery.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from peers.machine.peer_nodes import on_node
from peers.machine.process_herd import free_ports
from peers.runs.workload_plan import NUM_NODES, RunPlan

ROOT: Final = Path(__file__).absolute().parents[3]
_MAX_RESTARTS: Final = "10"


@dataclass(frozen=True, slots=True)
class Command:
    """One process to start for a run."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variant:
    """An alternative with settings.

    Attributes:
        peer: The alternative.
        setting: ``default`` or ``tuned``.
        what: The settings in words, for the report.
        settings: Read by the training.
        commands: Returns the processes of a run, given the directory of programs and the plan's
            file. They are started in this order; the run is over when all but the first
            ``num_servers`` have ended.
        silent_settings: Added to ``settings`` where a fault must be found by a timeout.
    """

    peer: str
    setting: str
    what: str
    settings: Mapping[str, float]
    commands: Callable[[Path, RunPlan], Sequence[Command]]
    num_servers: int = 0
    silent_settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name on the command line and in the results."""
        return f"{self.peer}/{self.setting}"

    def settings_for(self, *, is_silent: bool) -> dict[str, float]:
        """Return what the training reads in a run with such faults."""
        return {**self.settings, **(self.silent_settings if is_silent else {})}


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a run's processes."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)]),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_CPP_LOG_LEVEL": "error",
        **extra,
    }


def _plan_file(plan: RunPlan) -> str:
    return str(Path(plan.directory) / "plan.json")


def _elastic(
    program: str,
    options: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    rendezvous: Sequence[str] = (),
) -> Callable[[Path, RunPlan], Sequence[Command]]:
    """Return what starts a launcher, or one per node where a node is to be lost.

    ``rendezvous`` is its configuration where there are several nodes. One of them is enough to go
    on, and the first one has the rendezvous store.
    """

    def commands(programs: Path, plan: RunPlan) -> Sequence[Command]:
        endpoint = f"--rdzv-endpoint=127.0.0.1:{free_ports(1)}"
        head = [str(programs / program)]
        common = [
            f"--max-restarts={_MAX_RESTARTS}",
            "--rdzv-backend=c10d",
            endpoint,
            "--local-addr=127.0.0.1",
            *options,
        ]
        tail = ["-m", "peers.training.restarted", _plan_file(plan)]
        num_ranks = plan.workload.num_ranks
        if not plan.loses_a_node:
            size = ["--nnodes=1", f"--nproc-per-node={num_ranks}"]
            return [Command([*head, *size, *common, *tail], environment or {})]
        launchers = []
        for node, ranks in _by_node(plan):
            size = [f"--nnodes=1:{NUM_NODES}", f"--nproc-per-node={len(ranks)}"]
            conf = ",".join([f"is_host={str(node == 0).lower()}", *rendezvous])
            words = [*head, *size, *common, "--rdzv-id=recovery", f"--rdzv-conf={conf}", *tail]
            launchers.append(
                Command(words, {**(environment or {}), **on_node(plan.directory, node)})
            )
        return launchers

    return commands


def _by_node(plan: RunPlan) -> Iterator[tuple[int, range]]:
    """Return the nodes of the run with their ranks; without a node to lose there is one."""
    workload = plan.workload
    size = workload.num_ranks_per_node if plan.loses_a_node else workload.num_ranks
    for node, first in zip(count(), range(0, workload.num_ranks, size)):
        yield node, range(first, min(first + size, workload.num_ranks))


def _wrapped(programs: Path, plan: RunPlan) -> Sequence[Command]:
    # Its documentation: not under torchrun, which ends all ranks when one dies.
    num_reserve = sum(fault.kind in {"kill", "hang"} for fault in plan.faults)
    world_size = plan.workload.num_ranks + num_reserve
    port = free_ports(3)
    node_of = {rank: node for node, ranks in _by_node(plan) for rank in ranks}
    return [
        Command(
            [str(programs / "python"), "-m", "peers.training.wrapped", _plan_file(plan)],
            {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                **on_node(plan.directory, node_of.get(rank, 0)),
            },
        )
        for rank in range(world_size)
    ]


def _managed(lighthouse: Sequence[str]) -> Callable[[Path, RunPlan], Sequence[Command]]:
    def commands(programs: Path, plan: RunPlan) -> Sequence[Command]:
        num_groups = plan.workload.num_ranks
        port = free_ports(1 + num_groups)
        bind = [str(programs / "torchft_lighthouse"), "--bind", f"[::]:{port}"]
        groups = [
            Command(
                [
                    str(programs / "torchrun"),
                    "--nnodes=1",
                    "--nproc-per-node=1",
                    f"--max-restarts={_MAX_RESTARTS}",
                    "--master-addr=127.0.0.1",
                    f"--master-port={port + 1 + group}",
                    "-m",
                    "peers.training.managed",
                    _plan_file(plan),
                ],
                {
                    "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}",
                    "REPLICA_GROUP_ID": str(group),
                    "NUM_REPLICA_GROUPS": str(num_groups),
                    **on_node(plan.directory, node),
                },
            )
            for node, ranks in _by_node(plan)
            for group in ranks
        ]
        return [Command([*bind, *lighthouse]), *groups]

    return commands


_QUICK_LAUNCHER: Final = "--monitor-interval=0.02"

# Ranks share the launcher's store, and torch 2.13 makes none for a restart: a rank that comes early
# reads the addresses of the ranks before the restart and can't connect (pytorch#135712).
_OWN_STORE: Final = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

# Nodes that leave are noticed after 3 s, and nobody waits longer than 2 s for one that is missing.
_QUICK_RENDEZVOUS: Final = (
    "last_call_timeout=2",
    "keep_alive_interval=1",
    "keep_alive_max_attempt=3",
)
_QUICK_RENDEZVOUS_TEXT: Final = f"for nodes `--rdzv-conf={','.join(_QUICK_RENDEZVOUS)}`"

VARIANTS: Final[Sequence[Variant]] = (
    Variant(
        "torchrun",
        "default",
        "c10d rendezvous on an explicit endpoint, `--max-restarts`; all else as it comes"
        " (`--monitor-interval` 0.1 s)",
        {},
        _elastic("torchrun", []),
    ),
    Variant(
        "torchrun",
        "tuned",
        "`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, `--monitor-interval=0.02`; ranks start without"
        f" torch's compiler; for a hang or a lost node a collective timeout of 5 s;"
        f" {_QUICK_RENDEZVOUS_TEXT}",
        {"lean_imports": 1},
        _elastic("torchrun", [_QUICK_LAUNCHER], _OWN_STORE, rendezvous=_QUICK_RENDEZVOUS),
        silent_settings={"collective_timeout": 5},
    ),
    Variant(
        "ft_launcher",
        "default",
        "heartbeats of the ranks, timeouts as they come (60 and 45 min)",
        {"heartbeats": 1},
        _elastic("ft_launcher", ["--ignore-missing-fault-tol-cfg"]),
    ),
    Variant(
        "ft_launcher",
        "tuned",
        "heartbeat timeouts 30 and 5 s, `--ft-workload-check-interval=1`,"
        f" `--monitor-interval=0.02`; ranks start without torch's compiler; {_QUICK_RENDEZVOUS_TEXT}",
        {"heartbeats": 1, "lean_imports": 1},
        _elastic(
            "ft_launcher",
            [
                "--ft-initial-rank-heartbeat-timeout=30",
                "--ft-rank-heartbeat-timeout=5",
                "--ft-workload-check-interval=1",
                _QUICK_LAUNCHER,
            ],
            rendezvous=_QUICK_RENDEZVOUS,
        ),
    ),
    Variant(
        "inprocess",
        "default",
        "`inprocess.Wrapper` with its defaults, gloo timeout 10 s as in its example, one reserve"
        " rank per kill or hang",
        {"gloo_timeout": 10},
        _wrapped,
    ),
    Variant(
        "inprocess",
        "tuned",
        "intervals of 0.1 s, no wait for concurrent faults, heartbeat timeout 5 s, gloo timeout"
        " 2 s, one reserve rank per kill or hang; for a hang or a lost node `soft_timeout` 5 s,"
        " `hard_timeout` 8 s, `termination_grace_time` 0.5 s",
        {
            "gloo_timeout": 2,
            "monitor_thread_interval": 0.1,
            "monitor_process_interval": 0.1,
            "heartbeat_interval": 0.1,
            "progress_watchdog_interval": 0.1,
            "heartbeat_timeout": 5,
            "last_call_wait": 0,
            "lean_imports": 1,
        },
        _wrapped,
        silent_settings={"soft_timeout": 5, "hard_timeout": 8, "termination_grace_time": 0.5},
    ),
    Variant(
        "torchft",
        "default",
        "lighthouse as in its README (`--join_timeout_ms 10000`), `min_replica_size=1`, gloo"
        " timeout 5 s, asynchronous quorum, a fixed share of the data per group as in its example",
        {"gloo_timeout": 5, "min_replica_size": 1},
        _managed(["--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000"]),
        num_servers=1,
    ),
    Variant(
        "torchft",
        "tuned",
        "`--quorum_tick_ms 20 --join_timeout_ms 1000 --heartbeat_timeout_ms 1000`, gloo timeout 2 s;"
        " the global batch is divided over the groups that take part, with a synchronous quorum;"
        " ranks start without torch's compiler",
        {"gloo_timeout": 2, "min_replica_size": 1, "divides_batch": 1, "lean_imports": 1},
        _managed(
            [
                *("--min_replicas", "1", "--quorum_tick_ms", "20", "--join_timeout_ms", "1000"),
                *("--heartbeat_timeout_ms", "1000"),
            ]
        ),
        num_servers=1,
    ),
)
