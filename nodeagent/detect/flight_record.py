"""The newest collective of each process group, from torch's flight recorder.

torch keeps a ring of the collectives that a process has called: the group, a sequence number that
all members of the group count alike, the name, the state. It writes the ring as JSON
(``torch._C._distributed_c10d``); there is a pickle too, which nobody but its own process should
read.

A process that continues in another generation makes its groups anew, under the same names. The ring
then holds both groups. Only the newest group of a name counts, and nothing from before the
generation. Pipeline exchanges are left out, since their numbers belong to a pair of ranks.

Pure; what follows from it is decided in ``controller.core.rules.collectives``. A record that is not
understood, as of another version of torch, is an empty one.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import ValidationError

from nodeagent.protocol.standing import MAX_COLLECTIVES, Collective

_MAX_NAME_CHARS: Final = 80


def newest_collectives(records: Iterable[bytes | str], since_ns: int) -> tuple[Collective, ...]:
    """Return the newest collective of each group, the newest first, at most ``MAX_COLLECTIVES``.

    A group that is in several records is reported as in the first of them. Each backend counts on
    its own, so the numbers of all members must come from the same backend.

    Args:
        records: What each backend's flight recorder writes, version 2 of its format.
        since_ns: Nothing older counts; nanoseconds since the epoch.
    """
    found: dict[str, tuple[int, Collective]] = {}
    for record in records:
        found = _newest_of(record, since_ns) | found
    by_time = sorted(found.values(), key=lambda one: one[0], reverse=True)
    return tuple(collective for _, collective in by_time[:MAX_COLLECTIVES])


def _newest_of(record: bytes | str, since_ns: int) -> dict[str, tuple[int, Collective]]:
    """Return by group when its newest collective was called, and that collective."""
    try:
        entries = json.loads(record)["entries"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    newest: dict[str, tuple[tuple[int, int], int, Collective]] = {}
    for entry in entries if isinstance(entries, list) else ():
        try:
            created_ns = int(entry["time_created_ns"])
            if entry["is_p2p"] or created_ns < since_ns:
                continue
            age = int(entry["pg_id"]), int(entry["collective_seq_id"])
            collective = _collective(entry)
        except (KeyError, TypeError, ValueError, IndexError, ValidationError):
            continue
        known = newest.get(collective.group)
        if known is None or known[0] <= age:
            newest[collective.group] = age, created_ns, collective
    return {group: (created_ns, one) for group, (_, created_ns, one) in newest.items()}


def _collective(entry: Mapping[str, object]) -> Collective:
    group = entry["process_group"]
    if not isinstance(group, list):
        raise TypeError("a process group is its name and its description")
    state = str(entry["state"])[:_MAX_NAME_CHARS]
    return Collective(
        group=str(group[0])[:_MAX_NAME_CHARS],
        description=str(group[1])[:_MAX_NAME_CHARS],
        sequence=int(str(entry["collective_seq_id"])),
        name=str(entry["profiling_name"])[:_MAX_NAME_CHARS],
        state=state,
        is_over=bool(entry["retired"]) or state == "completed",
    )
