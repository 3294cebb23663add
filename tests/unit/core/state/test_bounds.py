"""What the state remembers of the past is bounded, however long a run is."""

from controller.core.incidents.incident_log import open_incident
from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Incident, IncidentLog
from controller.core.state.phases import IncidentState
from controller.core.state.task_history import RunProgress
from controller.core.state.turn import Turn
from tests.fakes.clusters import demo_machine


def incidents(num: int, *, keeps_open: int) -> IncidentLog:
    """Return a log of so many incidents, of which every so many-th is never cured."""
    machine = demo_machine()
    turn = Turn(machine.state, machine.policy, cause=1, at=1.0)
    log = machine.state.incidents
    for number in range(1, num + 1):
        evidence = Evidence("exit", 1.0, 1.0, None, None, None, f"fault {number}")
        incident = open_incident(turn, None, evidence)
        incident.decide()
        if number % keeps_open:
            incident.act(1.0)
            log.close(incident, 2.0)
    return log


def names(found: list[Incident]) -> list[int]:
    return [int(incident.name.removeprefix("I-")) for incident in found]


def test_the_newest_cured_incidents_and_all_open_ones_are_kept() -> None:
    log = incidents(1000, keeps_open=100)
    assert len(log.all) == 200
    assert names(log.open()) == [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    cured = names([each for each in log.all if each.state is IncidentState.RESOLVED])
    assert cured == [number for number in range(809, 1001) if number % 100][-190:]
    assert log.next_name() == "I-1001"


def test_searches_find_what_is_kept_after_old_ones_are_forgotten() -> None:
    log = incidents(450, keeps_open=1000)
    assert log.open() == []
    assert log.num_over == len(log.all) == 200
    assert log.find("I-1") is None
    newest = log.find("I-450")
    assert newest is not None
    log.reopen(newest, 3.0)
    assert log.open() == [newest]


def test_the_losses_of_the_newest_iterations_are_kept() -> None:
    progress = RunProgress()
    for iteration in range(1, 12_001):
        progress.note_new(iteration, float(iteration))
    assert list(progress.losses) == list(range(7001, 12_001))
    assert progress.iteration == 12_000
