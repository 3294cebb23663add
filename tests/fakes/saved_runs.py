"""A run of a modelled cluster, saved as a controller saves one."""

import zlib
from pathlib import Path

from controller.store.journal import Journal
from tests.fakes.world import World


def with_crc(line: bytes) -> bytes:
    """Return a line of JSON with its checksum, as if a controller had written it."""
    text = line[:-1]
    return text + b',"crc":"%08x"}' % zlib.crc32(text) if line.endswith(b"}") else line


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
