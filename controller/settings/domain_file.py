"""The ``[failure_domains]`` section of a settings file: which nodes fail together.

    [failure_domains]
    rack-1 = ["n1", "n2"]
    rack-2 = ["n3", "n4"]

All nodes that are not named form one domain. ``controller.core.rules.placement`` uses the domains.
"""

from collections.abc import Collection
from pathlib import Path

from controller.settings.settings_file import SettingsError, read_section
from nodeagent.protocol.ids import NodeId


def load_failure_domains(path: Path, nodes: Collection[NodeId]) -> dict[NodeId, str]:
    """Return the domain of every node that the file names.

    Args:
        path: A TOML file. Without a ``[failure_domains]`` section there are no domains.
        nodes: The cluster's nodes.

    Raises:
        SettingsError: The file can't be read, a domain is not a list of nodes, or a node is unknown
            or in two domains.
    """
    domains: dict[NodeId, str] = {}
    for domain, members in read_section(path, "failure_domains").items():
        place = f"{path}: failure_domains.{domain}"
        if not domain:
            raise SettingsError(f"{place}: the name is empty; give the domain a name")
        if not isinstance(members, list):
            raise SettingsError(f"{place}: {members!r} must be a list of nodes")
        for node in members:
            if node not in nodes:
                raise SettingsError(f"{place}: no node {node!r}; nodes: {', '.join(nodes)}")
            if node in domains:
                raise SettingsError(
                    f"{place}: {node} is in {domains[node]} already; keep it in one domain"
                )
            domains[node] = domain
    return domains
