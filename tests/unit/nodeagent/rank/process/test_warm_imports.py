"""What holds while the training program is imported, and no longer."""

import gc
from importlib import import_module
from typing import Any

import pytest

from nodeagent.rank.process import warm_imports


def test_the_collector_is_off_during_imports_only() -> None:
    num_frozen = gc.get_freeze_count()
    with warm_imports._without_garbage_collection():
        assert not gc.isenabled()
        imported = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= num_frozen + len(imported), "it never looks at them"


@pytest.mark.parametrize("num_gpus", [0, 8])
def test_imports_that_look_for_gpus_ask_neither_driver_nor_nvml(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int
) -> None:
    cuda: Any = import_module("torch").cuda
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    monkeypatch.setattr(cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(cuda, "_device_count_nvml", lambda: pytest.fail("NVML was asked"))
    monkeypatch.setattr(warm_imports, "_num_device_files", lambda: num_gpus)
    with warm_imports._without_driver():
        assert (cuda.device_count(), cuda.is_available()) == (num_gpus, num_gpus > 0)
    with pytest.raises(pytest.fail.Exception, match="NVML"):
        cuda.is_available()
