"""Precedence: which of two lines names the fault. The decision rules are the order of the names."""

from enum import StrEnum
from typing import Final


class Precedence(StrEnum):
    """The weight of a line. Of two lines, the line whose precedence stands first names the fault.

    Precedences from ``VETO`` on name no fault by themselves.
    """

    HARDWARE = "hardware"  # names a device that is broken
    NODE = "node"  # a node is gone
    KILLER = "killer"  # the kernel killed a process, and says why
    STICKY = "sticky"  # an error after which the CUDA context is unusable
    APPLICATION = "application"  # an error of the program that has a status of its own
    CUDA = "cuda"  # an error of CUDA whose reason a line above may name better
    SOFTWARE = "software"  # any other exception
    DEATH = "death"  # a process died by a signal
    DAEMON = "daemon"  # a launcher lost its helper: the node, or only the process
    NIC = "nic"  # a network device is dead
    LINK = "link"  # a link changed its state
    COMPLETION = "completion"  # a transfer failed
    HANG = "hang"  # a live process does not arrive
    CONNECT = "connect"  # a peer was not reached
    RESET = "reset"  # a peer ended a socket
    REMOTE = "remote"  # a library says that something remote failed
    TIMEOUT = "timeout"  # a collective timed out
    FOLLOWER = "follower"  # printed after a timeout, and after other ends
    STUCK_WATCHDOG = "stuck-watchdog"  # the watchdog itself does not return
    STORE = "store"  # the rendezvous store went away with its process
    EXIT = "exit"  # a launcher's line about an exit code, an abort
    CLEANUP = "cleanup"  # channels of a process that ended

    VETO = "veto"  # takes back the other entries of its line
    SOFT = "soft"  # the line says that the program continues
    RELIEF = "relief"  # takes back other lines
    LINK_EVENT = "link-event"  # one change of a link: several make a fault
    PORT_STATE = "port-state"  # one look at a port
    COUNTER = "counter"  # one reading of a counter
    PROGRESS = "progress"  # training continues
    DETAIL = "detail"  # counts only in a combination

    @property
    def is_ranked(self) -> bool:
        """Whether a line of this precedence names a fault by itself."""
        return _RANK[self] < _RANK[Precedence.VETO]

    @property
    def rank(self) -> int:
        """Place in the order: the lowest number names the fault."""
        return _RANK[self]


_RANK: Final = {precedence: number for number, precedence in enumerate(Precedence)}
