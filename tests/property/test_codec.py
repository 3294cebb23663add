"""The codec under every split of the stream."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from nodeagent.protocol.codec import Codec, LineSplitter, ProtocolError, encode
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import FromRank, RankHello, RankPulse, RankReport
from nodeagent.protocol.observations import RankRaised
from nodeagent.protocol.rendezvous import StoreCall

CODEC: Codec[FromRank] = Codec(TypeAdapter(FromRank))

TEXT = st.text(max_size=40)
TASKS = TEXT.map(TaskId)
GENERATIONS = st.integers(min_value=0, max_value=2**40).map(Generation)
NUMBERS = st.integers(min_value=0, max_value=2**50)
SECONDS = st.floats(allow_nan=False)
RAISED = st.builds(
    RankRaised, task=TASKS, generation=GENERATIONS, global_rank=NUMBERS, kind=st.just("rank_raised")
)
MESSAGES: st.SearchStrategy[FromRank] = st.one_of(
    st.builds(RankHello, task=TASKS, generation=GENERATIONS, global_rank=NUMBERS, pid=NUMBERS),
    st.builds(RankPulse, iteration=NUMBERS, duration_s=SECONDS),
    st.builds(RankReport, seq=NUMBERS, wall_s=SECONDS, observation=RAISED),
    st.builds(
        StoreCall,
        call_id=TEXT,
        task=TASKS,
        generation=GENERATIONS,
        keys=st.lists(TEXT, max_size=3),
        amount=st.integers(min_value=-(2**50), max_value=2**50),
        timeout_s=SECONDS,
    ),
)


@st.composite
def split_streams(draw: st.DrawFn) -> tuple[list[FromRank], list[bytes]]:
    messages = draw(st.lists(MESSAGES, max_size=4))
    stream = b"".join(encode(message) for message in messages)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    bounds = [0, *cuts, len(stream)]
    return messages, [stream[a:b] for a, b in pairwise(bounds)]


@given(split_streams())
def test_messages_survive_any_split_of_the_stream(
    case: tuple[list[FromRank], list[bytes]],
) -> None:
    messages, pieces = case
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    assert [CODEC.decode(line) for line in lines] == messages


@given(st.lists(MESSAGES, min_size=1, max_size=2))
def test_messages_survive_every_single_cut(messages: list[FromRank]) -> None:
    stream = b"".join(encode(message) for message in messages)
    expected = [encode(message)[:-1] for message in messages]
    for cut in range(len(stream) + 1):
        splitter = LineSplitter()
        assert [*splitter.feed(stream[:cut]), *splitter.feed(stream[cut:])] == expected


@given(MESSAGES)
def test_every_byte_alone_gives_the_same_message(message: FromRank) -> None:
    splitter = LineSplitter()
    lines = [line for byte in encode(message) for line in splitter.feed(bytes([byte]))]
    assert [CODEC.decode(line) for line in lines] == [message]


@given(MESSAGES, st.dictionaries(TEXT.map("x_{}".format), NUMBERS, max_size=2))
def test_unknown_fields_are_ignored(message: FromRank, unknown: dict[str, int]) -> None:
    fields = {**json.loads(encode(message)), **unknown}
    assert CODEC.decode(json.dumps(fields).encode()) == message


@given(st.binary(max_size=200))
def test_anything_else_is_a_protocol_error_and_nothing_worse(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        CODEC.decode(line)


@given(st.integers(1, 64), st.integers(1, 8))
def test_line_above_the_limit_is_refused_however_it_arrives(limit: int, piece: int) -> None:
    splitter = LineSplitter(max_line_bytes=limit)
    stream = b"x" * (limit + 1)

    def feed_in_pieces() -> None:
        for start in range(0, len(stream), piece):
            splitter.feed(stream[start : start + piece])

    with pytest.raises(ProtocolError, match="at most"):
        feed_in_pieces()
    within = LineSplitter(max_line_bytes=limit)
    assert within.feed(b"x" * limit + b"\n") == [b"x" * limit]
