"""What a run of the matrix does before it starts a cluster."""

from controller.drill_matrix.drill_options import choose_drills, cluster_options
from controller.drill_matrix.drill_runs import MatrixRun
from controller.drills.drill_arguments import NO_NAMESPACES


async def test_where_no_drill_can_be_run_no_cluster_is_started() -> None:
    said: list[str] = []
    matrix = MatrixRun(cluster_options(network="loopback"), 60.0, said.append)
    await matrix.run(choose_drills(["partition"]))
    assert matrix.impossible == {"partition": f"not here: {NO_NAMESPACES}"}
    assert (matrix.rows, said) == ([], [])
