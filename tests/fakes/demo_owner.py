"""A demo reduced to its cluster: ``python -m tests.fakes.demo_owner SSHD NETWORK``.

Starts two nodes with a daemon on each, says in one JSON line what there is, and waits to be ended.
"""

import asyncio
import json
import sys
from typing import cast

from controller.localcluster.local_cluster import LocalCluster
from controller.localcluster.local_node import NetworkChoice, ServerChoice
from tests.fakes.local_nodes import run_daemon


async def main(sshd: ServerChoice, network: NetworkChoice) -> None:
    async with LocalCluster.start(2, 1, sshd=sshd, network=network) as cluster:
        async with asyncio.TaskGroup() as group:
            for node in cluster.nodes:
                group.create_task(run_daemon(node))
        hosts = [cluster.host_pid(node) for node in cluster.nodes]
        others = [pid for node in cluster.nodes for pid in cluster.pids(node)]
        print(  # noqa: T201 - its interface
            json.dumps(
                {
                    "root": str(cluster.root),
                    "ports": [node.port for node in cluster.nodes],
                    "warden": cluster.warden_pid,
                    "pids": [cluster.warden_pid, *hosts, *others],
                }
            ),
            flush=True,
        )
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(cast(ServerChoice, sys.argv[1]), cast(NetworkChoice, sys.argv[2])))
