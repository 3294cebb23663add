"""The base of all views, and a view that several views hold."""

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """Base of all views: immutable. Unknown fields of a newer controller are ignored."""

    # JSON has no NaN, and a loss may be one: as text it reaches the console instead of a null.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class LayoutView(View):
    """Sizes of a task's parallel groups."""

    tp: int
    pp: int
    dp: int
