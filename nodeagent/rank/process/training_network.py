"""The variables that have gloo and NCCL use the network interface of the ranks.

By default gloo takes the address that the machine's name has. Debian and Ubuntu map that name to
127.0.1.1, so ranks of two machines never meet. NCCL takes the first interface that looks right.
So the interface is found before a rank makes its groups. Nothing here needs torch.
"""

from collections.abc import Mapping
from typing import Final

from nodeagent.process_tools.network_interfaces import TrainingInterface, find_interface
from nodeagent.protocol.rank_launch import RankNetwork

GLOO_VARIABLE: Final = "GLOO_SOCKET_IFNAME"
NCCL_VARIABLE: Final = "NCCL_SOCKET_IFNAME"


def interface_of(network: RankNetwork) -> TrainingInterface | None:
    """Return the interface for the ranks of a task on this node; None if nothing shows it.

    Raises:
        NoInterfaceError: The cluster file names an interface that this node does not have.
    """
    return find_interface(network.host, network.interface, network.peers)


def network_variables(network: RankNetwork | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that have gloo and NCCL use the interface.

    A variable that is set already stays as it is: the site or the user knows better.

    Raises:
        NoInterfaceError: The cluster file names an interface that this node does not have.
    """
    found = interface_of(network) if network is not None else None
    if found is None:
        return {}
    # NCCL takes a name for the beginning of names, unless it begins with "=".
    wanted = {GLOO_VARIABLE: found.name, NCCL_VARIABLE: f"={found.name}"}
    return {name: value for name, value in wanted.items() if not inherited.get(name)}
