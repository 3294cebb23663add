"""The table of keys in ``docs/console.md`` is the command registry."""

from pathlib import Path

from console.command_registry import COMMANDS
from console.viewmodel.panels.key_bar import key_name

PAGE = Path(__file__).parents[3] / "docs" / "console.md"


def test_the_table_of_keys_is_the_registry() -> None:
    lines = PAGE.read_text().splitlines()
    first = lines.index("| key | command | needs armed |") + 2
    rows = [
        "| {} | {} | {} |".format(
            ", ".join(f"`{key_name(key).replace('^', 'ctrl+')}`" for key in command.key.split(",")),
            command.title,
            "" if command.danger == "none" else "yes",
        )
        for command in COMMANDS
    ]
    assert lines[first : first + len(rows)] == rows
    assert lines[first + len(rows)] == ""
