"""Readings of the node's GPUs through NVML, NVIDIA's management library.

Run on one healthy H100 without NVLink; all else follows NVIDIA's documentation of NVML. The library
is optional: where it or its driver is missing there are no GPUs, and that is no error. NVML can
block for long when a driver is in trouble, so callers read in a thread of their own. What one GPU
does not offer is left out of its reading.
"""

import ctypes
import importlib
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from typing_extensions import override

from nodeagent.detect.gpu_faults import GpuReading

_LOG = logging.getLogger(__name__)

_LIBRARY: Final = "libnvidia-ml.so.1"
_THROTTLES: Final = {
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "temperature (software)",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "temperature (hardware)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}
"""Reasons that are a fault of the node. The power cap is none: it is reached in normal training."""

ValueT = TypeVar("ValueT")


class Gpus(Protocol):
    """Where readings of GPUs come from."""

    @property
    def state(self) -> str:
        """How many GPUs there are, or why there is none, in words for an operator."""

    def read(self) -> list[GpuReading]:
        """Return a reading of every GPU. May block; does not raise."""


class NvmlGpus(Gpus):
    """The GPUs that NVML lists. A driver that appears later is found at a later ``read``."""

    def __init__(self, load: Callable[[], Any] | None = None) -> None:
        """Look for GPUs at the first ``read``.

        Args:
            load: Returns the module ``pynvml``, or raises ``OSError`` where there is no library.
        """
        self._load = load or _load
        self._nvml: Any = None
        self._devices: list[tuple[int, str, object | None]] = []
        """Index, address and handle; no handle where the driver says that the GPU is lost."""
        self._has_ended = False
        self._state = "not looked for yet"

    @property
    @override
    def state(self) -> str:
        return self._state

    @override
    def read(self) -> list[GpuReading]:
        """Return a reading of every GPU; none where there is no library or no driver."""
        if not self._devices:
            try:
                self._nvml = self._load()
            except OSError as error:
                self._state = f"no GPU: {error}"
                return []
            try:
                self._devices = self._find_devices()
            except self._nvml.NVMLError as error:
                self._state = f"no GPU: {error}"
                return []
            self._state = f"{len(self._devices)} GPUs"
        readings = [self._reading(index, bus, device) for index, bus, device in self._devices]
        if not self._has_ended:
            return readings
        self._devices, self._has_ended = [], False
        self._state = "NVML has ended, perhaps with its driver: looked for anew"
        return []

    def _find_devices(self) -> list[tuple[int, str, object | None]]:
        self._nvml.nvmlInit()
        return [self._find(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _find(self, index: int) -> tuple[int, str, object | None]:
        nvml = self._nvml
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            bus = nvml.nvmlDeviceGetPciInfo(device).busId
        except nvml.NVMLError_GpuIsLost:
            return index, "address not known", None
        return index, bus.decode() if isinstance(bus, bytes) else str(bus), device

    def _reading(self, index: int, bus: str, device: object | None) -> GpuReading:
        nvml = self._nvml
        if device is None:
            return GpuReading(index=index, bus=bus, is_lost=True)
        try:
            remap = self._offered(nvml.nvmlDeviceGetRemappedRows, device)
            links = self._links(device)
            return GpuReading(
                index=index,
                bus=bus,
                num_uncorrectable=self._offered(
                    nvml.nvmlDeviceGetTotalEccErrors,
                    device,
                    nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                    nvml.NVML_VOLATILE_ECC,
                ),
                is_remap_pending=None if remap is None else bool(remap[2]),
                is_remap_failed=None if remap is None else bool(remap[3]),
                is_link_active=links,
                num_link_errors=self._num_link_errors(device, links),
                temperature_c=self._offered(
                    nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU
                ),
                slowdown_c=self._offered(
                    nvml.nvmlDeviceGetTemperatureThreshold,
                    device,
                    nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
                ),
                throttled_by=self._throttles(device),
            )
        except nvml.NVMLError_GpuIsLost:
            return GpuReading(index=index, bus=bus, is_lost=True)

    def _links(self, device: object) -> dict[int, bool]:
        links: dict[int, bool] = {}
        for link in range(self._nvml.NVML_NVLINK_MAX_LINKS):
            state = self._offered(self._nvml.nvmlDeviceGetNvLinkState, device, link)
            if state is None:  # there are no more links on this GPU
                break
            links[link] = bool(state)
        return links

    def _num_link_errors(self, device: object, links: dict[int, bool]) -> int | None:
        nvml = self._nvml
        counts = [
            self._offered(nvml.nvmlDeviceGetNvLinkErrorCounter, device, link, counter)
            for link, is_active in links.items()
            if is_active
            for counter in (nvml.NVML_NVLINK_ERROR_DL_REPLAY, nvml.NVML_NVLINK_ERROR_DL_RECOVERY)
        ]
        known = [count for count in counts if count is not None]
        # A sum over another set of links is another number: better none than a false rise.
        return sum(known) if known and len(known) == 2 * len(links) else None

    def _throttles(self, device: object) -> tuple[str, ...] | None:
        bits = self._offered(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device)
        if bits is None:
            return None
        return tuple(
            words for name, words in _THROTTLES.items() if bits & getattr(self._nvml, name)
        )

    def _offered(self, question: Callable[..., ValueT], *arguments: object) -> ValueT | None:
        """Return the answer; None if this GPU or driver has none, or gives none now.

        Raises:
            NVMLError_GpuIsLost: The GPU is lost.
        """
        try:
            return question(*arguments)
        except self._nvml.NVMLError_GpuIsLost:
            raise
        except self._nvml.NVMLError_Uninitialized:
            self._has_ended = True
            return None
        except self._nvml.NVMLError as error:
            _LOG.debug(
                "NVML call failed: call=%s reason=%s", getattr(question, "__name__", "NVML"), error
            )
            return None


def _load() -> Any:  # noqa: ANN401 - a module without types
    try:
        # Before pynvml, which costs time and memory that nodes without GPUs need not pay.
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise OSError("NVML library not found") from error
    return importlib.import_module("pynvml")
