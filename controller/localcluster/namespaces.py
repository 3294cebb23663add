"""A network namespace for each node, joined by a switch.

    demo's namespace               switch's namespace               namespace of node n1
    unicron-4f2a01 198.18.7.1 ---- uplink | bridge | n1 ----------- eth0 198.18.7.11

The warden runs in the switch's namespace. Each host runs in its node's namespace, with all
processes of the node. The namespaces have no names, so the kernel removes them and their links when
their last process ends. Nothing is left behind, however the demo ends. Only the uplink's end is
visible outside; it disappears with its other end. To unplug a node, the switch's end of its link is
taken down. Then the node can't be reached and no connection is reset, as with a pulled cable.

Needs root and the program ``ip`` (iproute2). The addresses are of 198.18.0.0/15, which is reserved
for test networks (RFC 2544). Standard library only. Only for processes with one thread, since a
thread enters a namespace alone.
"""

import ctypes
import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

NODE_INTERFACE: Final = "eth0"
"""The name of a node's only interface besides the loopback, on the node."""
UPLINK_PREFIX: Final = "unicron-"
"""The prefix of the name of the demo's end of the uplink."""

_OWN_NAMESPACE: Final = "/proc/self/ns/net"
_BRIDGE: Final = "switch"
_UPLINK: Final = "uplink"
_TEST_NETWORKS: Final = ipaddress.IPv4Network("198.18.0.0/15")
_SUBNET_BITS: Final = 24
_LEAST_ROUTE_BITS: Final = 8
_FIRST_NODE: Final = 10
"""Node ``n1`` has the next address in the subnet."""
_CLONE_NEWNET: Final = 0x40000000
_LIMIT_S: Final = 10.0
_SYSTEM_DIRECTORIES: Final = "/usr/sbin:/sbin:/usr/bin:/bin"

_libc: Final = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """Namespaces or links can't be made here. The text says why, in one line."""


def find_program() -> str:
    """Return the program ``ip``.

    Raises:
        NetworkError: The program is missing, or this process does not run as root.
    """
    if os.geteuid() != 0:
        raise NetworkError("network namespaces need root")
    program = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:{_SYSTEM_DIRECTORIES}")
    if program is None:
        raise NetworkError("the program ip (iproute2) is missing")
    return program


def node_address(gateway: str, number: int) -> str:
    """Return the address of node ``number`` in the subnet of the demo's own address ``gateway``."""
    subnet = ipaddress.IPv4Interface(f"{gateway}/{_SUBNET_BITS}").network
    return str(subnet[_FIRST_NODE + number])


class Switch:
    """The switch between the nodes. ``build`` makes it; ``gateway`` is the demo's address."""

    def __init__(self, program: str, gateway: str, namespace: int) -> None:
        self.gateway = gateway
        self._program = program
        self._namespace = namespace

    @classmethod
    def build(cls) -> "Switch":
        """Move this process into a new namespace with a bridge, linked to the one it leaves.

        Raises:
            NetworkError: Not permitted, or ``ip`` is missing or fails. The process keeps its
                namespace.
        """
        program = find_program()
        outside = _open_namespace(_OWN_NAMESPACE)
        try:
            _enter_new_namespace()
            try:
                gateway = _create_uplink(program, outside)
                return cls(program, gateway, _open_namespace(_OWN_NAMESPACE))
            except (NetworkError, OSError):
                # Leaving the new namespace removes it and its links: it has no other process.
                _enter(outside)
                raise
        finally:
            os.close(outside)

    @contextmanager
    def new_namespace(self) -> Iterator[None]:
        """Fork inside this context: the child keeps the new namespace, this process leaves it.

        Raises:
            NetworkError: The kernel refuses.
        """
        _enter_new_namespace()
        try:
            yield
        finally:
            _enter(self._namespace)

    def connect(self, node: str, pid: int, address: str) -> None:
        """Link the namespace of process ``pid`` to the switch as ``node``; replace an earlier link.

        Raises:
            NetworkError: The link can't be made, for instance because the process has ended.
        """
        # The kernel may still be removing the namespace of a dead host.
        with suppress(NetworkError):
            _ip(self._program, [["link", "del", node]])
        inside = _open_namespace(f"/proc/{pid}/ns/net")
        try:
            _ip(
                self._program,
                [
                    _new_link(node, NODE_INTERFACE, str(pid)),
                    ["link", "set", node, "addrgenmode", "none", "master", _BRIDGE, "up"],
                ],
            )
            _enter(inside)
            try:
                _ip(self._program, _set_up(NODE_INTERFACE, address))
            finally:
                _enter(self._namespace)
        finally:
            os.close(inside)

    def unplug(self, node: str) -> None:
        """Take the link of ``node`` down.

        Raises:
            NetworkError: The node has no link.
        """
        _ip(self._program, [["link", "set", node, "down"]])

    def plug_in(self, node: str) -> None:
        """Take the link of ``node`` up; does nothing if it is up.

        Raises:
            NetworkError: The node has no link.
        """
        _ip(self._program, [["link", "set", node, "up"]])

    def close(self) -> None:
        """Close a forked process's copy of the switch, so that the switch ends with the warden."""
        os.close(self._namespace)

    def remove(self) -> None:
        """Remove both ends of the uplink, before the kernel does. Never raises."""
        with suppress(NetworkError):
            _ip(self._program, [["link", "del", _UPLINK]])


def _create_uplink(program: str, outside: int) -> str:
    """Create bridge and uplink inside the switch's namespace; return the demo's address."""
    name = UPLINK_PREFIX + os.urandom(3).hex()
    _ip(
        program,
        [
            ["link", "add", _BRIDGE, "type", "bridge"],
            ["link", "set", _BRIDGE, "addrgenmode", "none", "up"],
            _new_link(_UPLINK, name, f"/proc/{os.getpid()}/fd/{outside}"),
            ["link", "set", _UPLINK, "addrgenmode", "none", "master", _BRIDGE, "up"],
        ],
    )
    inside = _open_namespace(_OWN_NAMESPACE)
    try:
        _enter(outside)
        try:
            return _assign_address(program, name)
        finally:
            _enter(inside)
    finally:
        os.close(inside)


def _assign_address(program: str, name: str) -> str:
    """Give the demo's end of the uplink an address in an unused subnet; return the address."""
    for subnet in free_subnets(_routes(program), os.getpid()):
        address = str(subnet[1])
        _ip(program, _set_up(name, address))
        if _routes(program).count(str(subnet)) == 1:
            return address
        # Another demo chose the same subnet at the same moment.
        _ip(program, [["addr", "del", f"{address}/{_SUBNET_BITS}", "dev", name]])
    raise NetworkError(f"no free subnet in {_TEST_NETWORKS}")


def free_subnets(routes: Sequence[str], start: int) -> Iterator[ipaddress.IPv4Network]:
    """Yield each subnet that no route leads to, from number ``start`` on.

    Args:
        routes: Destinations in the format of ``ip route``. Routes as wide as a default route don't
            count.
        start: The first subnet's number. Demos with different starts rarely collide.
    """
    networks = [ipaddress.IPv4Network(each, strict=False) for each in routes if each != "default"]
    taken = [network for network in networks if network.prefixlen >= _LEAST_ROUTE_BITS]
    subnets = list(_TEST_NETWORKS.subnets(new_prefix=_SUBNET_BITS))
    for index in range(len(subnets)):
        subnet = subnets[(start + index) % len(subnets)]
        if not any(subnet.overlaps(other) for other in taken):
            yield subnet


def _new_link(name: str, other_name: str, namespace: str) -> list[str]:
    """Return the command for a link with its other end in ``namespace`` (a process or a file)."""
    link = ["link", "add", name, "type", "veth"]
    return [*link, "peer", "name", other_name, "netns", namespace]


def _set_up(interface: str, address: str) -> list[list[str]]:
    return [
        ["link", "set", "lo", "up"],
        ["addr", "add", f"{address}/{_SUBNET_BITS}", "dev", interface],
        ["link", "set", interface, "addrgenmode", "none", "up"],
    ]


def _routes(program: str) -> list[str]:
    """Return the destinations of this namespace's main routing table."""
    output = _run([program, "-4", "-json", "route", "show"])
    try:
        return [str(route["dst"]) for route in json.loads(output or "[]")]
    except (ValueError, KeyError, TypeError) as error:
        raise NetworkError(f"{program} route: not understood: {error}") from error


def _ip(program: str, commands: Sequence[Sequence[str]]) -> None:
    _run([program, "-batch", "-"], "".join(f"{' '.join(words)}\n" for words in commands))


def _run(argv: Sequence[str], text: str = "") -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program with words made here
            argv, input=text, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkError(str(error)) from error
    if done.returncode != 0:
        output = "; ".join(done.stderr.strip().splitlines())
        raise NetworkError(f"{argv[0]}: {output or f'ended with {done.returncode}'}")
    return done.stdout


def _open_namespace(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror}") from error


def _enter_new_namespace() -> None:
    if _libc.unshare(_CLONE_NEWNET) != 0:
        raise NetworkError(f"unshare: {os.strerror(ctypes.get_errno())}")


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise NetworkError(f"setns: {os.strerror(ctypes.get_errno())}")
