"""A node for each test; nothing of it survives the test."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.node import AgentNode


@pytest.fixture
async def node() -> AsyncIterator[AgentNode]:
    """A node with a living agent."""
    node = AgentNode()
    try:
        await node.start()
        yield node
    finally:
        node.remove()
