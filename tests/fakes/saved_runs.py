"""A run of a modelled cluster, saved as a controller saves one."""

import json
import zlib
from pathlib import Path
from typing import Any

from controller.store.journal import Journal, read_journal
from controller.store.journal_lines import encode_readable
from tests.fakes.world import World


def with_crc(line: bytes) -> bytes:
    """Return a line of a journal with its checksum, as if a controller had written it."""
    text = line[:-1]
    return text + b',"%08x"]' % zlib.crc32(text) if line.endswith(b"]") else line


def readable_events(directory: Path) -> list[Any]:
    """Return the events of a run's journal as scripts see them."""
    events = read_journal(directory / "journal.jsonl")
    return [json.loads(encode_readable(event)) for event in events]


def write_journal(world: World, path: Path) -> Path:
    """Write all that has happened, and return the path."""
    journal = Journal(path)
    for event in world.events:
        journal.append(event)
    journal.close()
    return path


def save_run(world: World, directory: Path) -> Path:
    """Write the journal, and return the directory."""
    write_journal(world, directory / "journal.jsonl")
    return directory
