"""The calls to NVML, with its own names and errors but answers of our own: no GPU was there."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml  # type: ignore[import-untyped]
import pytest

from nodeagent.detect.gpu_faults import GpuReading
from nodeagent.probes.gpu import NvmlGpus


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> object:
        raise error

    return call


def nvml(**answers: Callable[..., Any]) -> SimpleNamespace:
    """NVML of one GPU that offers nothing but ``answers``."""
    unsupported = raising(pynvml.NVMLError_NotSupported())
    functions = {name: unsupported for name in vars(pynvml) if name.startswith("nvmlDeviceGet")} | {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: f"device {index}",
        "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(busId="00000000:3B:00.0"),
    }
    assert answers.keys() <= functions.keys()
    return SimpleNamespace(**{**vars(pynvml), **functions, **answers})


def test_what_a_gpu_does_not_offer_is_left_out() -> None:
    gpus = NvmlGpus(nvml)
    assert gpus.read() == [GpuReading(index=0, bus="00000000:3B:00.0")]
    assert gpus.state == "1 GPUs"


def test_reading_holds_what_nvml_says() -> None:
    throttles = (
        pynvml.nvmlClocksThrottleReasonHwThermalSlowdown | pynvml.nvmlClocksThrottleReasonSwPowerCap
    )

    def link_state(_: object, link: int) -> int:
        if link >= 2:
            raise pynvml.NVMLError_InvalidArgument
        return 1

    def link_errors(_: object, link: int, counter: int) -> int:
        return 10 * link + counter

    fake = nvml(
        nvmlDeviceGetTotalEccErrors=lambda _, kind, span: 3 if (kind, span) == (1, 0) else 0,
        nvmlDeviceGetRemappedRows=lambda _: (9, 1, 1, 0),
        nvmlDeviceGetNvLinkState=link_state,
        nvmlDeviceGetNvLinkErrorCounter=link_errors,
        nvmlDeviceGetTemperature=lambda *_: 71,
        nvmlDeviceGetTemperatureThreshold=lambda _, threshold: 90 if threshold == 1 else 95,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: throttles,
    )
    assert NvmlGpus(lambda: fake).read() == [
        GpuReading(
            index=0,
            bus="00000000:3B:00.0",
            num_uncorrectable=3,
            is_remap_pending=True,
            is_remap_failed=False,
            is_link_active={0: True, 1: True},
            num_link_errors=22,
            temperature_c=71,
            slowdown_c=90,
            throttled_by=("temperature (hardware)",),
        )
    ]


def test_lost_gpu_is_a_reading_and_no_error() -> None:
    fake = nvml(nvmlDeviceGetTemperature=raising(pynvml.NVMLError_GpuIsLost()))
    assert NvmlGpus(lambda: fake).read() == [
        GpuReading(index=0, bus="00000000:3B:00.0", is_lost=True)
    ]


def test_node_without_library_or_driver_has_no_gpu_until_it_has_one() -> None:
    no_driver = nvml(nvmlInit=raising(pynvml.NVMLError_DriverNotLoaded()))
    answers: list[SimpleNamespace | OSError] = [
        OSError("NVML library not found"),
        no_driver,
        nvml(),
    ]

    def load() -> SimpleNamespace:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    gpus = NvmlGpus(load)
    assert gpus.read() == []
    assert gpus.state == "no GPU: NVML library not found"
    assert gpus.read() == []
    assert "Driver Not Loaded" in gpus.state
    assert len(gpus.read()) == 1


def test_a_library_that_has_ended_is_loaded_anew_at_the_next_look() -> None:
    """As after a reload of the driver: every question fails from then on."""
    ended = nvml(nvmlDeviceGetTemperature=raising(pynvml.NVMLError_Uninitialized()))
    answers = [ended, nvml(nvmlDeviceGetTemperature=lambda *_: 50)]
    gpus = NvmlGpus(lambda: answers.pop(0))
    assert gpus.read() == []
    assert "looked for anew" in gpus.state
    assert [reading.temperature_c for reading in gpus.read()] == [50]
    assert gpus.state == "1 GPUs"


@pytest.mark.gpu
def test_real_gpus_have_a_temperature() -> None:
    gpus = NvmlGpus()
    readings = gpus.read()
    if not readings:
        pytest.skip(gpus.state)
    assert all(reading.temperature_c for reading in readings)
