"""What holds while the training program is imported, and no longer."""

import gc

from nodeagent.rank.process.warm_imports import _without_garbage_collection


def test_the_collector_is_off_during_imports_only() -> None:
    with _without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
