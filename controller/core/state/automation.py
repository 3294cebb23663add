"""Whether plans are applied without an operator, and what has stopped that."""

from dataclasses import dataclass


@dataclass(slots=True)
class Automation:
    """What the controller has done by itself lately."""

    applied_at: tuple[float, ...] = ()
    """When policy has applied plans lately, oldest first."""
    stopped: str = ""
    """Why every plan waits for an operator, whatever policy says; empty if it does not."""
    stopped_at: float = 0.0
    resumed_at: float = 0.0
    """What was before this does not stop it again."""

    started_wall_s: float = 0.0
    """Wall clock at the start of the run, seconds since the epoch."""

    def note_start(self, started_wall_s: float) -> None:
        """A controller of the run begins."""
        self.started_wall_s = started_wall_s

    def note_applied(self, at: float, since: float) -> None:
        """Policy applies a plan; those before ``since`` stop to count."""
        self.applied_at = (*(each for each in self.applied_at if each >= since), at)

    def stop(self, reason: str, at: float) -> None:
        """Every plan waits for an operator from now on."""
        self.stopped, self.stopped_at = reason, at

    def resume(self, at: float) -> None:
        """An operator lets policy apply plans again."""
        self.stopped, self.resumed_at, self.applied_at = "", at, ()
