"""A model by name, or its shape as a JSON file.

    {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "gated": true,
     "seq": 8192, "vocab": 128256, "tied": false}

``kv_heads`` (as many as heads), ``ffn`` (four times the width), ``gated`` (false) and ``tied``
(true) may be left out.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from profiles.estimate.shape import SHAPE_BY_NAME, DecoderShape
from profiles.records import Record, RecordError, is_there, parse_record, read_text

_Width = Annotated[int, Field(ge=1, le=10**6)]
_Tokens = Annotated[int, Field(ge=1, le=10**8)]


class _Shape(Record):
    name: str | None = None
    layers: int = Field(ge=1, le=10_000)
    hidden: _Width
    heads: _Width
    kv_heads: _Width | None = None
    ffn: _Width | None = None
    gated: bool = False
    seq: _Tokens
    vocab: _Tokens
    tied: bool = True

    @model_validator(mode="after")
    def _heads_fit(self) -> "_Shape":
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        return self


def find_shape(name: str) -> DecoderShape:
    """Return the shape of a model by its name, or from the file that ``name`` is the path of.

    Raises:
        RecordError: No such model; or the file can't be read, or something in it is wrong.
    """
    if name in SHAPE_BY_NAME:
        return SHAPE_BY_NAME[name]
    if not name:
        raise RecordError(f"the name of the model is empty; known: {', '.join(SHAPE_BY_NAME)}")
    path = Path(name)
    if path.suffix != ".json" and not is_there(path):
        nearest = get_close_matches(name, SHAPE_BY_NAME, n=1)
        mend = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(SHAPE_BY_NAME)}"
        raise RecordError(f"no model is called {name!r:.80}, and no file; {mend}")
    text = read_text(path)
    shape = parse_record(_Shape, text, str(path))
    return DecoderShape(
        layers=shape.layers, hidden=shape.hidden, heads=shape.heads, seq=shape.seq,
        vocab=shape.vocab, kv_heads=shape.kv_heads or shape.heads,
        ffn=shape.ffn or 4 * shape.hidden, gated=shape.gated, tied=shape.tied,
    )  # fmt: skip
