"""Kinds of lines that public threads showed, in other words than theirs."""

import pytest

from profiles.faults.excerpt import classify_excerpt
from profiles.faults.stream import FindingStream

STEPS = "\n".join(f"step {number} | loss 2.{500 - number}" for number in range(101, 109))
KEEPALIVE = (
    "W0722 09:10:44.881 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1333] The node"
    " 'n{}_402_0' has failed to send a keep-alive heartbeat to the rendezvous 'moe' due to an error"
    " of type Rendezvous{}Error."
)


def told(*lines: str) -> str:
    return classify_excerpt("\n".join(lines)).status


def in_a_log(*lines: str) -> list[str]:
    stream = FindingStream()
    found = [*stream.feed("\n".join(lines).encode()), *stream.close()]
    return [finding.verdict.status for finding in found]


@pytest.mark.parametrize("error", ["Timeout", "Connection"])
def test_who_could_not_send_its_keepalive_is_alive(error: str) -> None:
    line = KEEPALIVE.format(1, error)
    assert told(line) == "other_network_error"
    assert told(line, STEPS) == "none"
    assert told(STEPS, "`Trainer.fit` stopped: `max_steps=108` reached.", line) == "none"
    killed = (
        "E0722 api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 402) of binary: /bin/python"
    )
    assert told(killed, line) == "exited_abnormally"


@pytest.mark.parametrize(
    ("device", "status"),
    [
        ("mlx5_core 0000:41:00.0: PCIe link lost, device now detached", "other_network_error"),
        ("nvme nvme3: controller is down; will reset: CSTS=0xffffffff", "other_software_error"),
        (
            "nvidia 0000:41:00.0: Unable to change power state, device inaccessible",
            "gpu_driver_error",
        ),
    ],
    ids=["mlx5", "nvme", "nvidia"],
)
def test_containment_at_a_port_belongs_to_the_device_behind_it(device: str, status: str) -> None:
    port = "pcieport 0000:40:01.1: DPC: containment event, status:0x1f01 source:0x0000"
    assert told(port, device) == status


@pytest.mark.parametrize(
    "line",
    [
        "host-0:87:94 [5] ibvwrap.c:94 NCCL WARN Call to ibv_open_device failed",
        "host-0:87:94 [5] ibvwrap.cc:120 NCCL WARN Call to ibv_query_port failed with error No such device",
        "node-3:19:19 [0] nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data",
        "[node4:0:311 unique id 8][2026-02-02] ERROR [SD][error] - failed to connect to AM - error -51 received",
        "[1770] ib_iface.c:1096 UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory",
    ],
)  # fmt: skip
def test_a_run_that_starts_without_a_network_device_goes_on(line: str) -> None:
    assert told(line) == "other_network_error"
    assert told(line, STEPS) == "none"


@pytest.mark.parametrize(
    "lines",
    [
        ("rm: cannot remove '/opt/cache/x.lock': Read-only file system", STEPS),
        (STEPS, "Exception in thread NetStatThr:", "Traceback (most recent call last):",
         "ConnectionResetError: [Errno 104] Connection reset by peer", STEPS),
        (STEPS, "Exception in thread MLflowBatchLogger:", "Traceback (most recent call last):",
         "mlflow.exceptions.MlflowException: API request to http://mlf:5000 failed", STEPS),
        (STEPS, "Exception in thread NetStatThr:", "Traceback (most recent call last):",
         "ConnectionResetError: [Errno 104] Connection reset by peer"),
        ("Epoch 0: 3%|2 | 565/20101 [2:12<76:15, 14.0s/it, loss=nan, train_loss=3.910]",
         "Epoch 0: 3%|2 | 566/20101 [2:12<76:15, 14.0s/it, loss=nan, train_loss=3.900]"),
    ],
    ids=["read-only cache", "wandb", "mlflow", "cut off after a thread", "bar without a loss"],
)  # fmt: skip
def test_training_goes_on(lines: tuple[str, ...]) -> None:
    assert told(*lines) == "none"


def test_a_loss_that_is_not_a_number_stays_a_fault() -> None:
    bar = "Epoch 0: 3%|2 | {}/20101 [2:12<76:15, 14.0s/it, loss=nan, val_loss=3.910]"
    assert told(*(bar.format(number) for number in range(560, 570))) == "nan_loss"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("terminate called after throwing an instance of 'torch::jit::JITException'", "other_software_error"),
        ("libc++abi: terminating due to uncaught exception of type app::BadShape", "other_software_error"),
        ("terminate called without an active exception", "exited_abnormally"),
        ("pure virtual method called", "exited_abnormally"),
        ("F0000 00:00:1717141650.890307 9276 client.cc:487] Non-OK-status: status status: INTERNAL: no", "other_software_error"),
        ("panic at src/loader.rs:41: index out of bounds", "other_software_error"),
        ("app.exceptions.ShardGone: shard 41 of the data set does not exist", "other_software_error"),
        ("TimeoutError: RPC call to execute_model timed out.", "task_hang"),
        ("DeepEP combine NVL sender timeout, channel: 1, RDMA: 0, nvl: 2", "nccl_timeout"),
        ("EI0008: [PID: 4411] 2026-03-01 The collective waits for its peers", "nccl_timeout"),
        ("slurmd error running JobId=41 on node(s)=n7: Kill task failed", "lost_connection"),
        ("ERROR:  nhc:  Health check failed:  check_fs_mount:  /scratch not mounted", "lost_connection"),
        ("slurmstepd: error: pyxis: couldn't start container", "other_software_error"),
        ("VFS: file-max limit 65536 reached", "other_software_error"),
        ("cgroup: fork rejected by pids controller in /slurm/job_4", "other_software_error"),
        ("    GPU Recovery Action                   : Reset", "gpu_driver_error"),
        ("    GPU Recovery Action                   : None", "none"),
        ("        Requires Reset                    : Yes", "gpu_driver_error"),
        ("Pod was rejected: no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu", "gpu_driver_error"),
        ("amdgpu 0000:c1:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "ecc_error"),
    ],
)  # fmt: skip
def test_what_was_missed_is_found(text: str, status: str) -> None:
    assert told(text) == status


def test_a_closed_rendezvous_is_the_echo_of_a_killed_process() -> None:
    killed = (
        "E0722 api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 402) of binary: /bin/python"
    )
    closed = "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"
    assert told(killed, closed) == "exited_abnormally"


def test_a_fabric_manager_with_nothing_to_manage_is_no_fault() -> None:
    asked = (
        "nv-fabricmanager[41]: request to query NVSwitch device information from NVSwitch driver"
    )
    ended = "nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE"
    lines = f"{asked} failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]", ended
    assert told(*lines) == "none"
    assert told(*lines, "RuntimeError: CUDA error: system not yet initialized") == "nvlink_error"


def test_one_stall_is_no_hang_where_the_log_goes_on() -> None:
    stall = "stall_inspector.cc:107] One or more tensors were submitted by subset of ranks and wait"
    report = stall, "Missing ranks:", "20: [allreduce.noname.2]"
    others = tuple(f"n{number}:978:980 [1] NCCL INFO Setting affinity" for number in range(10))
    assert in_a_log(*report) == ["task_hang"]
    assert in_a_log(*report, *others) == []
    assert in_a_log(*report, *others, *report, *others) == ["task_hang"]


def test_a_node_that_operators_take_out_is_no_fault() -> None:
    assert told("node-mark-offline: Marking n7 offline: planned by operator") == "none"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python3 [4112]", "gpu_driver_error"),
        ("xe 0000:03:00.0: [drm] *ERROR* GT0: reset failed (-ETIMEDOUT)", "gpu_driver_error"),
        ("RuntimeError: Native API failed. Native API returns: ZE_RESULT_ERROR_DEVICE_LOST", "gpu_driver_error"),
        ("RuntimeError: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "out_of_memory"),
        ("habanalabs 0000:19:00.0: Device heartbeat failed! PCI link is broken", "gpu_driver_error"),
        ("habanalabs hl3: HBM1 pc2 interrupts info: WR_PAR=0, RD_PAR=0, CA_PAR=0, SERR=0, DERR=1", "ecc_error"),
        ("habanalabs hl3: HBM1 pc2 interrupts info: WR_PAR=0, RD_PAR=0, CA_PAR=0, SERR=4, DERR=0", "none"),
        ("ERROR  NRT:nrt_infodump  NRT_EXEC_HW_ERR_HBM_UE on nd2 nc1", "ecc_error"),
        ("ERROR  TDRV:exec  NRT_EXEC_HW_ERR_DMA_ABORT", "gpu_driver_error"),
        ("ERROR  TDRV:exec  NRT_EXEC_HW_ERR_COLLECTIVES", "nccl_timeout"),
        ("RuntimeError: nrt_load: NRT_RESOURCE", "out_of_memory"),
        ("TPU chip 3 on worker 11 is unhealthy", "gpu_driver_error"),
        ("INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device check-failure.", "cuda_error"),
        ("drv_pcie: NPU 5 heartbeat lost", "gpu_driver_error"),
        ("npu-smi: NPU 2 Health: Critical", "gpu_driver_error"),
        ("HBM MULTI BIT ECC, Uncorrectable ECC, device_id=3, event_id=0x80e01801", "ecc_error"),
    ],
)  # fmt: skip
def test_accelerators_of_other_vendors(text: str, status: str) -> None:
    assert told(text) == status


def test_an_accelerator_error_of_torch_is_what_it_says() -> None:
    text = "torch.AcceleratorError: CUDA error: uncorrectable {} encountered"
    assert told(text.format("ECC error")) == "ecc_error"
    assert told(text.format("NVLink error")) == "nvlink_error"


def test_corrected_errors_of_other_vendors_are_none() -> None:
    assert told("NPU 5 HBM single-bit ECC error corrected") == "none"


def test_a_disk_that_a_script_can_not_read_is_a_fault() -> None:
    assert told("cp: error reading '/data/shard-1': Input/output error") == "other_software_error"


def test_what_ends_a_run_after_its_tracker_lost_its_server_is_found() -> None:
    thread = "Exception in thread NetStatThr:", "Traceback (most recent call last):"
    reset = "ConnectionResetError: [Errno 104] Connection reset by peer"
    end = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert told(STEPS, *thread, reset, "Traceback (most recent call last):", end) == "out_of_memory"


@pytest.mark.parametrize(
    ("status", "line"),
    [
        ("lost_connection", "Spot instance interruption notice received: action=stop"),
        ("lost_connection", "The instance gpu-pool-7 was preempted. (compute.instances.preempted)"),
        ("lost_connection", "Instance trainer-2 was preempted by Compute Engine"),
        ("lost_connection", "mce: [Hardware Error]: Fatal machine check on current CPU"),
        ("lost_connection", "{3}[Hardware Error]: event severity: fatal"),
        ("lost_connection", "mmfs: [E] The node 10.4.0.9 was expelled: its lease has expired."),
        ("exited_abnormally", "MPI_ABORT was invoked on rank 11 in communicator MPI_COMM_WORLD"),
        ("exited_abnormally", "Fatal Python error: _PyObject_AssertFailed: object has no type"),
        ("exited_abnormally", "  message: 2/16 workers are evicted"),
        ("exited_abnormally", "    reason: MPIJobEvicted"),
        ("lost_connection", "agent: received a spot interruption notice, two minutes are left"),
        ("lost_connection", "machine tpu-host-4 will be reclaimed in 30 s"),
        ("other_software_error", "  Warning  Failed  kubelet  Error: ErrImagePull"),
        ("other_software_error", "  Normal  BackOff  kubelet  Back-off pulling image \"llm:9\""),
        ("gpu_driver_error", "nvidia-container-cli: detection error: nvml error: unknown error"),
        ("none", "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1"),
        ("gpu_driver_error", "amdgpu: Failed to evict queue 3"),
        ("cuda_error", "xe 0000:4d:00.0: [drm] GT1: Timedout job: seqno=8812, guc_id=4"),
        ("task_hang", "  Normal  Killing  kubelet  Container llm failed liveness probe, will be restarted"),
        ("other_software_error", "  Warning  Failed  kubelet  Failed to pull image \"llm:9\": not found"),
        ("other_software_error", "slurmstepd: error: pyxis: failed to import docker image"),
        ("other_software_error", "srun: error: Unable to allocate resources: Invalid account"),
        ("other_software_error", "zlib.error: Error -3 while decompressing data: invalid block type"),
        ("other_software_error", "train.py: error: Parser key \"data\": not a file"),
        ("gpu_driver_error", "nvidia-container-cli: initialization error: nvml error: driver not loaded"),
        ("gpu_driver_error", "nvidia-container-cli: device error: 5: unknown device"),
        ("gpu_driver_error", "kfd kfd: amdgpu: qcm fence wait loop timeout expired"),
        ("cuda_error", "xe 0000:4d:00.0: [drm] GT0: Engine reset: engine_class=ccs, guc_id=3"),
        ("none", "Listening for spot interruption notices of this instance"),
        ("none", "srun: error: Unable to create step for job 7: Job/step already completing or completed"),
        ("none", "signal handler: SIGTERM received after the preemption notice, saving"),
        ("none", "{3}[Hardware Error]: event severity: corrected"),
    ],
)  # fmt: skip
def test_what_clouds_launchers_and_drivers_say(status: str, line: str) -> None:
    assert told(line) == status


def test_a_fatal_error_of_memory_is_one_of_memory() -> None:
    fatal = "{1}[Hardware Error]: event severity: fatal"
    assert told(fatal, "{1}[Hardware Error]:   section_type: memory error") == "ecc_error"
