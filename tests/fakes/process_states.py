"""What the kernel says about a process that a test watches."""

from nodeagent.probes.process_stats import read_stat


def is_alive(pid: int) -> bool:
    """Return whether the program still runs; a zombie does not."""
    stat = read_stat(pid)
    return stat is not None and stat.is_alive


def state_of(pid: int) -> str:
    """Return the letter of the process's state; an empty string if there is no such process."""
    stat = read_stat(pid)
    return stat.state if stat is not None else ""


def is_stopped(pid: int) -> bool:
    """Return whether the process is stopped by a signal."""
    return state_of(pid) == "T"
