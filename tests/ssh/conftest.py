"""No test of the local cluster may leave a process."""

from collections.abc import Iterator

import pytest

from tests.fakes.local_nodes import no_leftovers


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with no_leftovers():
        yield
