"""Which addresses the networks of the nodes get."""

import ipaddress

from controller.localcluster.namespaces import free_subnets, node_address


def first(routes: list[str], start: int = 0) -> str:
    return str(next(free_subnets(routes, start)))


def test_nodes_are_counted_on_from_the_demos_own_address() -> None:
    assert node_address("198.18.7.1", 1) == "198.18.7.11"
    assert node_address("198.18.7.1", 64) == "198.18.7.74"


def test_subnets_are_of_the_range_for_tests_and_each_is_offered_once() -> None:
    offered = list(free_subnets([], 500))
    assert (str(offered[0]), str(offered[-1])) == ("198.19.244.0/24", "198.19.243.0/24")
    assert len(set(offered)) == 512
    assert all(each.subnet_of(ipaddress.IPv4Network("198.18.0.0/15")) for each in offered)


def test_a_subnet_that_a_route_leads_into_is_left_alone() -> None:
    assert first(["198.18.0.0/24"]) == "198.18.1.0/24"
    assert first(["198.18.0.77"]) == "198.18.1.0/24"
    assert first(["198.18.0.0/16"], 3) == "198.19.0.0/24"


def test_nothing_is_free_where_the_whole_range_is_taken() -> None:
    assert not list(free_subnets(["198.16.0.0/12"], 0))


def test_default_routes_take_nothing_also_those_of_tunnels() -> None:
    assert first(["default", "0.0.0.0/1", "128.0.0.0/1"]) == "198.18.0.0/24"
