"""Journals of a make-believe cluster that has been through every kind of event."""

from pathlib import Path

import pytest

from controller.store.journal import Journal
from controller.store.run_file import JOURNAL_NAME
from tests.fakes.recorded_worlds import eventful_world
from tests.fakes.world import World


@pytest.fixture(scope="session")
def world() -> World:
    return eventful_world()


@pytest.fixture
def run_dir(world: World, tmp_path: Path) -> Path:
    """The directory of a run with the journal of the world."""
    journal = Journal(tmp_path / JOURNAL_NAME)
    for event in world.events:
        journal.append(event)
    journal.commit_at_once()
    journal.close()
    return tmp_path
