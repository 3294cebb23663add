"""What a console says of the time without a connection."""

from console.viewmodel.absence import LinkAbsence, missed
from controller.api.views import ClusterView, ControllerView
from tests.fakes import cluster_views


def said(before: ClusterView, after: ClusterView) -> str:
    return missed(LinkAbsence(10.0, before), after, 70.0)


def with_term(view: ClusterView, term: int) -> ClusterView:
    controller = ControllerView(pid=1, host="h", term=term, since="", journal_bytes=0)
    return view.model_copy(update={"controller": controller})


def test_nothing_new_is_said_too() -> None:
    assert said(cluster_views.calm(), cluster_views.calm(200.0)) == "after 60 s: nothing new"


def test_incidents_lost_nodes_and_a_new_controller_are_named() -> None:
    calm, waiting = cluster_views.calm(), cluster_views.waiting()
    assert said(with_term(calm, 1), with_term(waiting, 2)) == (
        "after 60 s: 1 new incident INC-2; node lost n4; controller 2 has taken over"
    )


def test_of_many_incidents_the_first_are_named() -> None:
    calm = cluster_views.calm()
    incident = cluster_views.lost_node()
    many = [incident.model_copy(update={"id": f"I-{number}"}) for number in range(5)]
    after = calm.model_copy(update={"incidents": [*calm.incidents, *many]})
    assert said(calm, after) == "after 60 s: 5 new incidents I-0, I-1, I-2 and 2 more"


def test_another_run_is_said_to_be_one() -> None:
    other = cluster_views.calm().model_copy(update={"started_wall_s": 5.0})
    assert said(cluster_views.calm(), other) == "after 60 s: this is another run"
