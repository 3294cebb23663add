"""A new status is data: rows in a copy of the catalogue, followed from a log line to its cure."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.classify.explain_catalogue import explanation, listing
from controller.core.rules.actions import FaultCase, Handling, Occurrence, decide
from controller.core.rules.diagnosis import Diagnosis, diagnose, diagnose_symptoms
from controller.core.rules.evidence import Evidence, evidence_of
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.settings.explain_policy import rules, statuses
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import RankExited, RankRaised
from profiles.drills.drill import Drill
from profiles.drills.drill_catalogue import drills_of
from profiles.drills.exception_texts import Raised, load_exceptions
from profiles.drills.kernel_texts import load_kernel_messages
from profiles.faults.catalogue import Catalogue, load_catalogue
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status_table import status_by_sign
from profiles.faults.stream import FindingStream

PROFILES = Path(__file__).parents[3] / "profiles"
N1, TASK = NodeId("n1"), TaskId("gpt-a")
GPU = Worker(N1, 0)

COMMON = """
meaning = "the widget of a node is wrong"
response = "Replace the widget."
"""
DEVICE = """
severity = "SEV1"
names_device = true
is_network = false
may_be_echo = false
is_of_one_gpu = false
measured_as = ["gpu_link_errors"]
"""
NETWORK = """
severity = "SEV3"
names_device = false
is_network = true
may_be_echo = true
is_of_one_gpu = false
method = "online statistical monitoring"
"""
ONE_GPU = """
severity = "SEV2"
names_device = false
is_network = false
may_be_echo = false
is_of_one_gpu = true
"""
ENTRY = """
[[entry]]
id = "widget-broken"
status = "widget_error"
precedence = "hardware"
patterns = ['widget of the node is broken']
source = "invented for this test"
"""
EXCEPTION = """
[[exception]]
status = "widget_error"
exception = "RuntimeError"
message = "the widget of the node is broken"
"""
MESSAGE = """
[[message]]
name = "widget"
status = "widget_error"
text = "widget0: the widget of the node is broken"
"""


@dataclass(frozen=True)
class Data:
    """The catalogue with one more status, its exception, and its drills by kind."""

    catalogue: Catalogue
    raised: Raised
    drills: dict[str, Drill]


def with_status(folder: Path, facts: str) -> Data:
    """Copy the data files, append to them what a new status takes, and read them."""
    more = {
        "statuses.toml": f"[widget_error]{COMMON}{facts}",
        "gpu_hardware.toml": ENTRY,
        "exceptions.toml": EXCEPTION,
        "kernel_messages.toml": MESSAGE,
    }
    for data in (PROFILES / "faults/data", PROFILES / "drills/data"):
        for file in data.rglob("*.toml"):
            target = folder / file.relative_to(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(f"{file.read_text()}\n{more.get(file.name, '')}")
    catalogue = load_catalogue(folder)
    exceptions = load_exceptions(folder / "exceptions.toml", catalogue.statuses)
    messages = load_kernel_messages(folder / "kernel_messages.toml", catalogue.statuses)
    drills = {drill.kind: drill for drill in drills_of(exceptions, messages)}
    return Data(catalogue, exceptions["widget_error"], drills)


def raised(data: Data, *, is_in_collective: bool) -> Evidence:
    observation = RankRaised(
        task=TASK,
        generation=Generation(1),
        global_rank=0,
        exception_type=data.raised.exception,
        message=data.raised.whole_message,
        traceback="",
        is_in_collective=is_in_collective,
        iteration=3,
    )
    return evidence_of(observation, node=N1, at=1.0, observed_at=1.0, catalogue=data.catalogue)


def handling(diagnosis: Diagnosis, *earlier: Occurrence) -> Handling:
    case = FaultCase(diagnosis, 10.0, GPU, N1, record=earlier, has_other_gpus=True)
    return decide(case, Policy())


def diagnosed(data: Data) -> Diagnosis:
    diagnosis = diagnose([raised(data, is_in_collective=False)])
    assert diagnosis is not None
    return diagnosis


@pytest.mark.parametrize("facts", [DEVICE, NETWORK, ONE_GPU], ids=["device", "network", "gpu"])
def test_a_new_status_is_classified_explained_and_drilled(tmp_path: Path, facts: str) -> None:
    data = with_status(tmp_path, facts)
    severity = data.catalogue.statuses["widget_error"].severity
    text = "step 1 loss 2.0\nwidget0: the widget of the node is broken\n"
    verdict = classify_excerpt(text, catalogue=data.catalogue)
    assert (verdict.status, verdict.severity) == ("widget_error", severity)
    assert verdict.response == "Replace the widget."
    stream = FindingStream(catalogue=data.catalogue)
    [finding] = [*stream.feed(text.encode()), *stream.close()]
    assert finding.verdict.status == "widget_error"

    assert "    widget-broken" in listing(data.catalogue)
    assert "  means  the widget of a node is wrong" in explanation("widget_error", data.catalogue)
    [row] = [
        row for row in statuses(data.catalogue.statuses) if row["meaning"] == verdict_meaning(data)
    ]
    diagnosis = diagnosed(data)
    assert row["status"] == diagnosis.status == "widget_error"
    assert row["action"] == handling(diagnosis).paper_action
    assert row["severity"] == diagnosis.severity

    expected = data.drills["exception:status=widget_error"].expected
    assert (expected.status, expected.severity) == (diagnosis.status, diagnosis.severity)
    assert expected.action == handling(diagnosis).paper_action
    assert data.drills["kernel-log:line=widget"].expected.status == "widget_error"


def verdict_meaning(data: Data) -> str:
    return data.catalogue.statuses["widget_error"].facts.meaning


def test_a_status_that_names_a_device_outweighs_programs_and_isolates(tmp_path: Path) -> None:
    data = with_status(tmp_path, DEVICE)
    said = raised(data, is_in_collective=True)
    died = evidence_of(
        RankExited(task=TASK, generation=Generation(1), global_rank=1, pid=7, signal=9),
        node=N1,
        at=0.5,
        observed_at=0.5,
        catalogue=data.catalogue,
    )
    assert said.is_conclusive
    diagnosis = diagnose([died, said])
    assert diagnosis is not None
    assert (diagnosis.status, diagnosis.method) == ("widget_error", "exception propagation")
    assert handling(diagnosis).action == "isolate"
    assert status_by_sign(data.catalogue.statuses)["gpu_link_errors"] == "widget_error"


def test_a_status_of_the_network_may_be_an_echo_and_is_counted(tmp_path: Path) -> None:
    data = with_status(tmp_path, NETWORK)
    symptom = raised(data, is_in_collective=True)
    assert diagnose([symptom]) is None
    diagnosis = diagnose_symptoms([symptom])
    assert (diagnosis.status, diagnosis.method) == ("widget_error", "online statistical monitoring")
    assert handling(diagnosis).action == "reattempt"
    before = Occurrence(-100.0, diagnosis.status, GPU)
    assert handling(diagnosis, before).action == "reconfigure"
    assert data.drills["kernel-log:line=widget"].expected.action == "none"


def test_a_status_of_one_gpu_isolates_that_gpu_when_it_comes_back(tmp_path: Path) -> None:
    data = with_status(tmp_path, ONE_GPU)
    diagnosis = diagnosed(data)
    before = Occurrence(1.0, diagnosis.status, GPU)
    assert handling(diagnosis).action == "restart"
    assert handling(diagnosis, before) == Handling(
        "reconfigure", "2 faults of GPU 0 on n1 within 3600 s", is_gpu=True
    )
    assert any("widget_error" in rule for rule in rules(Policy(), data.catalogue.statuses))
