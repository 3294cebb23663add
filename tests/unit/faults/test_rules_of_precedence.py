"""Root cause over symptoms: the decision rules, one by one."""

import pytest

from profiles.faults.excerpt import classify_excerpt

_TIMEOUT = (
    "[rank1]:[E1014 10:10:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001"
    " milliseconds before timing out."
)
_RESET = "n1:1:2 [0] misc/socket.cc:50 NCCL WARN Call to recv from 10.0.0.1<1> failed : Connection reset by peer"
_LATE_RESET = "[E1014 10:11:00.0 x.cpp:1] gloo: Connection closed by peer [10.0.0.1]:1"
_EARLY_RESET = "[E1014 10:00:00.0 x.cpp:1] gloo: Connection closed by peer [10.0.0.1]:1"
_STORE_RESET = (
    "[rank0]:[W1014 10:10:05.0 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=1):"
    " Connection reset by peer"
)
_KEY_ERROR = "[rank3]: KeyError: 'x'"
_ECC = "[rank2]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
_KILLED = (
    "E0101 api.py:869] failed (exitcode: -9) local_rank: 2 (pid: 1) of binary: /usr/bin/python"
)
_ABORTED = (
    "E0101 api.py:869] failed (exitcode: -6) local_rank: 2 (pid: 1) of binary: /usr/bin/python"
)
_COMPLETION = (
    "n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=12 opcode=0"
)
_LINK_DOWN = "[900.1] mlx5_core 0000:a1:00.1 ens9f1np1: Link down"
_LINK_UP = "[903.1] mlx5_core 0000:a1:00.1 ens9f1np1: Link up"
_NIC = "[899.1] mlx5_core 0000:a1:00.1: poll_health:823:(pid 0): device's health compromised - reached miss count"
_OFF_BUS = "[10.5] NVRM: Xid (PCI:0000:89:00): 79, pid=0, GPU has fallen off the bus."
_LINK_FAULT = "[11.5] NVRM: Xid (PCI:0000:19:00): 74, pid=0, NVLink: fatal error detected on link 9"
_XID_45 = "NVRM: Xid (PCI:0000:9a:00): 45, pid=7, name=python3, Ch 00000002"
_SCANCEL = "sudo[8801]: ops : COMMAND=/usr/bin/scancel 551020"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([_RESET, _KEY_ERROR], "other_software_error"),
        ([_TIMEOUT, _RESET, _KEY_ERROR, _ECC], "ecc_error"),
        ([_TIMEOUT, _KILLED], "exited_abnormally"),
        ([_ABORTED, _TIMEOUT], "nccl_timeout"),
        ([_KILLED, _KEY_ERROR], "other_software_error"),
        ([_STORE_RESET, _TIMEOUT], "nccl_timeout"),
        ([_LATE_RESET, _TIMEOUT], "nccl_timeout"),
        ([_TIMEOUT, _EARLY_RESET], "connection_refused_or_reset"),
        ([_COMPLETION, _RESET], "other_network_error"),
        ([_COMPLETION, _LINK_DOWN, _LINK_UP], "link_flapping"),
        ([_LINK_DOWN, _NIC], "other_network_error"),
        ([_LINK_FAULT, _OFF_BUS], "gpu_driver_error"),
        ([_OFF_BUS, _LINK_FAULT], "gpu_driver_error"),
        ([_XID_45], "exited_abnormally"),
        ([_XID_45 + " caused by previous Xid 48"], "ecc_error"),
        ([_SCANCEL, _XID_45], "none"),
        ([_LINK_UP], "none"),
    ],
)
def test_the_cause_is_named_and_not_its_symptoms(lines: list[str], status: str) -> None:
    assert classify_excerpt("\n".join(lines)).status == status


def test_the_order_of_lines_of_equal_weight_does_not_matter_where_they_have_times() -> None:
    forward = classify_excerpt(f"{_OFF_BUS}\n{_LINK_FAULT}")
    backward = classify_excerpt(f"{_LINK_FAULT}\n{_OFF_BUS}")
    assert forward.evidence == backward.evidence == _OFF_BUS


def test_the_reason_names_line_entry_and_symptoms() -> None:
    verdict = classify_excerpt(f"{_RESET}\n{_ECC}")
    assert verdict.line == 2
    assert verdict.evidence == _ECC
    assert "cuda-ecc" in verdict.reason
    assert "connection_refused_or_reset x1" in verdict.reason


def test_a_task_blocked_inside_the_gpu_driver_is_the_drivers_fault() -> None:
    blocked = "INFO: task python3:1 blocked for more than 122 seconds."
    assert classify_excerpt(blocked).status == "task_hang"
    inside = f"{blocked}\n  uvm_va_space_down_write+0x41/0x60 [nvidia_uvm]"
    assert classify_excerpt(inside).status == "gpu_driver_error"


def test_a_retry_that_succeeds_is_nothing_and_one_that_does_not_is_a_refusal() -> None:
    refused = "[c10d] The client socket has failed to connect to [m]:29500 (errno: 111 - Connection refused)."
    assert classify_excerpt(refused).status == "connection_refused_or_reset"
    assert classify_excerpt(f"{refused}\nprocess group ready").status == "none"


def test_an_attempt_at_something_else_takes_no_exception_back() -> None:
    text = f"{_KEY_ERROR}\nrendezvous completed on attempt 1"
    assert classify_excerpt(text).status == "other_software_error"


def test_counts_of_none_beside_others_take_nothing_back() -> None:
    assert classify_excerpt("sweep: new Xids 0, fatal SXids 2").status == "nvlink_error"
    assert classify_excerpt("sweep: new Xids 0, fatal SXids 0").status == "none"


def test_a_loss_that_is_odd_once_is_nothing_and_one_that_stays_is_a_fault() -> None:
    steps = [f"step {number} | loss 2.{number}" for number in range(4)]
    once = [*steps, "step 4 | loss nan", *steps]
    assert classify_excerpt("\n".join(once)).status == "none"
    assert classify_excerpt("\n".join([*steps, "step 4 | loss nan"])).status == "nan_loss"
    spike = [*steps, "step 4 | loss 41.0", "step 5 | loss 43.0"]
    assert classify_excerpt("\n".join(spike)).status == "nan_loss"


def test_an_exception_that_training_survives_is_nothing() -> None:
    survived = [_KEY_ERROR, "step 4 | loss 2.1", "step 5 | loss 2.0"]
    assert classify_excerpt("\n".join(survived)).status == "none"
    ended = [*survived, _ABORTED]
    assert classify_excerpt("\n".join(ended)).status == "other_software_error"


def test_a_timeout_beside_the_stack_of_a_rank_that_lives_is_a_hang() -> None:
    stack = 'Thread 4411 (idle): "MainThread"\n    get (queue.py:171)'
    assert classify_excerpt(f"{_TIMEOUT}\n{stack}").status == "task_hang"


def test_a_loss_that_grows_from_next_to_nothing_has_not_left_its_level() -> None:
    losses = [0.0001, 0.0002, 0.0009, 0.0031, 0.0102, 0.0144]
    steps = [f"step {number} | loss {loss}" for number, loss in enumerate(losses)]
    assert classify_excerpt("\n".join(steps)).status == "none"


def test_an_interrupt_from_the_keyboard_is_deliberate() -> None:
    interrupted = 'Traceback (most recent call last):\n  File "/w/t.py", line 4\nKeyboardInterrupt'
    assert classify_excerpt(interrupted).status == "none"
    cut_off = 'Traceback (most recent call last):\n  File "/w/t.py", line 4, in main'
    assert classify_excerpt(cut_off).status == "other_software_error"


def test_a_mapping_that_the_driver_refuses_is_named_beside_the_error_of_cuda() -> None:
    said = "RuntimeError: CUDA error: operation not supported on this OS (304); driver: NVRM: "
    verdict = classify_excerpt(f"{said}Failed to create a DMA mapping!")
    assert verdict.status == "invalid_dma_mapping"


def test_uncorrected_errors_are_no_corrected_ones() -> None:
    line = "monitor: ECC of gpu 3: 2 {} errors detected"
    assert classify_excerpt(line.format("uncorrected")).status == "ecc_error"
    assert classify_excerpt(line.format("corrected")).status == "none"


def test_refusals_until_the_time_is_over_are_refusals_and_silence_is_not() -> None:
    given_up = (
        "DistNetworkError: The client socket has timed out after 60000ms while trying to connect"
    )
    refused = (
        "[W1 socket.cpp:1] failed to connect to [m-0]:29500 (errno: 111 - Connection refused)."
    )
    assert classify_excerpt(given_up).status == "other_network_error"
    both = classify_excerpt(f"{refused}\n{given_up}")
    assert both.status == "connection_refused_or_reset"
