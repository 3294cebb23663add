"""The command palette: the registry, searched by name."""

from contextlib import suppress
from functools import partial

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from typing_extensions import override

from console.command_registry import COMMANDS, OperatorCommand
from console.viewmodel.console_state import State
from console.viewmodel.drawing.text import clean
from console.viewmodel.panels.key_bar import key_name
from console.widgets.appearance import Appearance


class CommandSearch(Provider):
    """Offers every command with its key, or with the reason why it is disabled."""

    async def discover(self) -> Hits:
        """Offer all commands before anything is typed."""
        for command in COMMANDS:
            run = partial(self.app.run_action, f"command('{command.id}')")
            yield DiscoveryHit(command.title, run, help=self._help(command))

    async def search(self, query: str) -> Hits:
        """Offer the commands whose titles match."""
        matcher = self.matcher(query)
        for command in COMMANDS:
            score = matcher.match(command.title)
            if score > 0:
                run = partial(self.app.run_action, f"command('{command.id}')")
                yield Hit(score, matcher.highlight(command.title), run, help=self._help(command))

    def _help(self, command: OperatorCommand) -> str:
        state: State = getattr(self.app, "state", State())
        enabled = command.enabled(state)
        appearance: Appearance = getattr(self.app, "appearance", Appearance())
        known = appearance.keys.get(command.id, command.key)
        keys = ", ".join(key_name(key) for key in known.split(","))
        text = f"key {keys}" if enabled is True else f"key {keys}; not now: {enabled}"
        # A reason names a plan or node. Textual prints such words as they are, and reads markup in
        # them: of a plan called "[/".
        return clean(text).replace("[", "(")


class SearchScreen(CommandPalette):
    """Textual's palette, which may be asked for a page before its list is laid out."""

    @override
    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError, IndexError):
            super()._action_command_list(action)
