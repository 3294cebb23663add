"""The registry is complete and free of clashes, and every refusal has its reason."""

from collections import Counter

from console.command_registry import COMMANDS, Danger, can_act, can_propose
from console.viewmodel.console_state import State
from console.viewmodel.drill_targets import hit_lines, proposed, targets
from console.viewmodel.reducer import ModeSwitched, reduce
from tests.fakes import cluster_views
from tests.unit.console.viewmodel.test_console_state import live


def test_ids_and_keys_are_unique() -> None:
    keys = [key for command in COMMANDS for key in command.key.split(",")]
    ids = [command.id for command in COMMANDS]
    assert [one for one, count in Counter(keys + ids).items() if count > 1] == []


def test_only_capital_letters_can_touch_the_cluster() -> None:
    for command in COMMANDS:
        if command.danger is not Danger.NONE:
            assert command.key.isupper()


def test_verbs_need_current_data_and_an_armed_console() -> None:
    assert can_act(State()) == "not connected to the controller"
    seen = live(cluster_views.waiting())
    assert can_act(seen) == "view mode, ctrl+t allows actions"
    armed = reduce(seen, ModeSwitched(10.0, is_armed=True))
    assert can_act(armed) is True
    assert can_propose(armed) == "P-2 already waits for a decision"


def test_every_dangerous_command_is_refused_in_view_mode() -> None:
    seen = live(cluster_views.calm())
    for command in COMMANDS:
        if command.danger is not Danger.NONE:
            assert isinstance(command.enabled(seen), str)


def test_rank_targets_are_all_ranks_and_the_proposal_has_a_replica() -> None:
    view = cluster_views.calm()
    kill_rank = view.drills[0]
    offered = targets(view, kill_rank)
    assert len(offered) == 8
    assert offered[proposed(view, offered, None)].key == "gpt-a/3"
    assert offered[proposed(view, offered, "gpt-b")].key == "gpt-b/3"
    assert offered[proposed(view, offered, "gone")].key == "gpt-a/3"


def test_node_targets_leave_out_lost_nodes() -> None:
    view = cluster_views.waiting()
    lose_node = view.drills[2]
    assert [target.node for target in targets(view, lose_node)] == ["n1", "n2", "n3"]
    calm = cluster_views.calm()
    offered = targets(calm, lose_node)
    assert offered[proposed(calm, offered, "n2")].node == "n2"
    assert offered[proposed(calm, offered, None)].node == "n4"


def test_what_a_drill_hits_is_named() -> None:
    view = cluster_views.calm()
    (node, *_) = targets(view, view.drills[2])
    assert hit_lines(view, node) == ["gpt-a: ranks 0, 1 on n1"]
    (rank, *_) = targets(view, view.drills[0])
    assert hit_lines(view, rank) == ["gpt-a rank 0 (process 4200) on n1, data-parallel replicas: 4"]
