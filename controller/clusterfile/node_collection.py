"""Collects the nodes of all documents, and finds what is wrong between them."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from controller.clusterfile.cluster_keys import NodesSection, SshSection
from controller.clusterfile.file_mistakes import Mistakes
from controller.clusterfile.hostlist import HostlistError, expand
from controller.clusterfile.node_groups import GroupError, ListedNode, nodes_of
from controller.clusterfile.section_reading import items_of, read_section, subject_of, tables_of
from controller.clusterfile.toml_document import TomlDocument
from nodeagent.protocol.ids import NodeId
from profiles.key_mistakes import Location, nearest


@dataclass(slots=True)
class NodeCollection:
    """The nodes so far.

    Attributes:
        cluster: Name of the cluster.
        ssh: What holds for all nodes that do not say otherwise.
        mistakes: Gets all mistakes.
        nodes: The nodes, by name.
    """

    cluster: str
    ssh: SshSection
    mistakes: Mistakes
    nodes: dict[NodeId, ListedNode] = field(default_factory=dict)
    _places: dict[NodeId, str] = field(default_factory=dict)
    _place_by_kind: dict[bool, str] = field(default_factory=dict)

    def take(self, document: TomlDocument, folder: Path) -> None:
        """Take the nodes of a document; paths in it are relative to ``folder``."""
        for number, table in enumerate(tables_of(document, "nodes")):
            location = ("nodes", number)
            group = read_section(document, location, table, NodesSection, self.mistakes)
            if group is None:
                continue
            for found in nodes_of(group, self.ssh, self.cluster, folder):
                if isinstance(found, GroupError):
                    self._add_group_error(document, location, found, group)
                else:
                    self._take_node(document, location, found)

    def take_domains(self, document: TomlDocument) -> None:
        """Take the ``[failure_domains]`` of a document, after the nodes of all documents."""
        for domain, members in items_of(document, "failure_domains").items():
            location = ("failure_domains", domain)
            try:
                for name in _names(members):
                    self._take_member(domain, NodeId(name))
            except ValueError as error:
                text = f"failure_domains.{domain:.40}: {error}"
                self.mistakes.add(document, location, text)

    def _take_node(self, document: TomlDocument, location: Location, node: ListedNode) -> None:
        name, place = node.address.node, document.place_of(location)
        if name in self.nodes:
            text = f"{name} is listed at {self._places[name]} already; name each node once"
            self.mistakes.add(document, location, f"{subject_of(location)}: {text}")
            return
        self.nodes[name], self._places[name] = node, place
        is_first_of_kind = node.has_gpus not in self._place_by_kind
        self._place_by_kind.setdefault(node.has_gpus, place)
        if is_first_of_kind and len(self._place_by_kind) > 1:
            key, other = ("gpus", "workers") if node.has_gpus else ("workers", "gpus")
            text = (
                f"{key}: the nodes at {self._place_by_kind[not node.has_gpus]} have {other}; ranks with"
                " and without GPUs can't train one task, so write a cluster file for each kind"
            )
            self.mistakes.add(document, (*location, key), f"{subject_of(location)}: {text}")

    def _add_group_error(
        self, document: TomlDocument, location: Location, error: GroupError, group: NodesSection
    ) -> None:
        """Add a mistake to the group, or to ``[ssh]`` if that has the key at fault."""
        if error.key in self.ssh.model_fields_set - group.model_fields_set:
            self.mistakes.add(document, ("ssh", error.key), f"ssh: {error}")
        else:
            text = f"{subject_of(location)}: {error}"
            self.mistakes.add(document, (*location, error.key), text)

    def _take_member(self, domain: str, name: NodeId) -> None:
        node = self.nodes.get(name)
        if node is None:
            near = nearest(name, self.nodes)
            words = f"did you mean {near[0]!r}?" if near else "list it under [[nodes]]"
            raise ValueError(f"no node {name!r:.60}; {words}")
        if node.failure_domain:
            raise ValueError(f"{name} is in {node.failure_domain} already; keep it in one domain")
        self.nodes[name] = replace(node, failure_domain=domain)


def _names(members: object) -> list[str]:
    """Return the nodes of a domain.

    Raises:
        ValueError: It is no list of hostlists.
    """
    if not isinstance(members, list) or not all(isinstance(each, str) for each in members):
        raise ValueError('must be a list of nodes: ["gpu-[001-008]"]')
    try:
        return [name for text in members for name in expand(text)]
    except HostlistError as error:
        raise ValueError(f"the list of nodes {error}") from error
