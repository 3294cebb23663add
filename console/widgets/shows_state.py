"""What screens, panels and bars have in common: the app gives them each new state."""

from console.viewmodel.console_state import State


class ShowsState:
    """A part of the console that shows the state.

    ``ConsoleApp.tick`` calls ``show`` of each screen on its stack that inherits from this class,
    and a screen calls ``show`` of its panels. Nothing else has to be registered. This is a plain
    class because Textual's metaclass does not go together with that of a Protocol.
    """

    def show(self, state: State) -> None:
        """Show ``state``. Runs on each tick and after each action, so it must be cheap."""
        raise NotImplementedError
