"""Forks a rank safely.

A fork copies one thread. Locks of other threads stay locked in the child, and a CUDA context does
not survive. After its parent had used NVML, NCCL failed in the child ("unhandled system error" on
an H100). ``fork_hazard`` returns the reason not to fork, if there is one.

The child begins a session of its own, closes the inherited descriptors, resets the signal handlers,
and sends its output to its log. At a fatal signal (SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL) it
prints the Python stack of every thread to the log before it ends. It never returns into the code of
its parent.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from nodeagent.process_tools.process_files import ProcessFiles
from nodeagent.protocol.rank_launch import RankLaunch

_INHERITED_SIGNALS: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def fork_hazard() -> str | None:
    """Return why a rank can't be forked from this process safely, or None if it can."""
    others = _other_threads()
    if others:
        return f"only one thread survives a fork, and the template has others: {others}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised in the template and can't be used after a fork"
    # A library may have called the driver or NVML behind torch's back; they hold this device open.
    for descriptor in Path("/proc/self/fd").iterdir():
        if _target(descriptor).startswith("/dev/nvidia-uvm"):
            return "CUDA's driver or NVML is initialised in the template and can't be used after a fork"
    return None


def fork_rank(
    files: ProcessFiles, launch: RankLaunch, run: Callable[[], int], release: Callable[[], None]
) -> int:
    """Fork ``launch``'s process, record it, and return its pid.

    Args:
        files: The files that record the rank.
        launch: The rank.
        run: Runs in the child; returns the exit code.
        release: Closes the parent's own objects in the child, before all other descriptors.

    Raises:
        OSError: The process could not be made or recorded. No process is left.
    """
    files.directory.mkdir(mode=0o700, exist_ok=True)
    files.clear()
    pid = os.fork()
    if pid == 0:
        _be_rank(files, run, release)
    try:
        files.write_start(launch, pid)
    except OSError:
        # The next agent would not find an unrecorded rank.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return pid


def set_process_name(name: str) -> None:
    """Show ``name`` in process listings; the kernel keeps 15 bytes of it."""
    Path("/proc/self/comm").write_text(name)


def _be_rank(files: ProcessFiles, run: Callable[[], int], release: Callable[[], None]) -> NoReturn:
    exit_code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in _INHERITED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        # The objects first: an object collected later would close a descriptor number in use again.
        release()
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        _redirect_output(files.log)
        faulthandler.enable(sys.stderr)
        exit_code = run()
    except BaseException:  # noqa: BLE001 - the child must never run the parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: the interpreter's clean-up belongs to the parent, and threads may block.
        os._exit(exit_code)


def _redirect_output(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, max(nothing, output) + 1)


def _other_threads() -> str:
    """Return the names of all threads but the calling one; others than Python's by the kernel."""
    started_here = {thread.native_id: thread.name for thread in threading.enumerate()}
    names = []
    for task in sorted(Path("/proc/self/task").iterdir()):
        if (number := int(task.name)) != threading.get_native_id():
            with contextlib.suppress(OSError):  # It has ended meanwhile.
                names.append(started_here.get(number) or (task / "comm").read_text().strip())
    return ", ".join(names)


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""  # The descriptor that listed the directory is closed already.
