"""What can be gone to, or ordered, by typing its name: the entries of the ``:`` bar."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.details.detail import DetailKind, DetailSubject
from console.viewmodel.drawing.numbers import plural
from console.viewmodel.filtering import matches
from console.viewmodel.panels.nodes_panel import node_word
from console.viewmodel.verbs import VERBS
from controller.api.views import ClusterView

MOST_FOUND: Final = 200


@dataclass(frozen=True, slots=True)
class Destination:
    """A screen about something, or a verb on it.

    Attributes:
        words: What is typed for it: ``node n3``, ``drain n3``.
        note: What it is now.
        subject: What it is about.
        verb_id: The verb; empty for the screen.
    """

    words: str
    note: str
    subject: DetailSubject
    verb_id: str = ""


def destinations(view: ClusterView) -> Iterator[Destination]:
    """Yield all of them: what is newest or worst comes first within its kind."""
    nodes = [(node.node, node_word(node)[1]) for node in view.nodes]
    tasks = [
        (task.name, f"{task.phase.value}, {plural(task.workers, 'worker')}") for task in view.tasks
    ]
    incidents = [
        (each.id, f"{each.status} {each.task or each.node or ''}, {each.state.value}")
        for each in reversed(view.incidents)
    ]
    plans = [(each.id, f"{each.state.value}: {each.seen}") for each in reversed(view.plans)]
    kinds: tuple[tuple[DetailKind, list[tuple[str, str]]], ...] = (
        ("incident", incidents), ("plan", plans), ("task", tasks), ("node", nodes),
    )  # fmt: skip
    for kind, named in kinds:
        for name, note in named:
            yield Destination(f"{kind} {name}", note, DetailSubject(kind, name))
    by_kind = dict(kinds)
    for verb in VERBS:
        if verb.subject in ("node", "task"):
            for name, note in by_kind[verb.subject]:
                words = f"{verb.button.lower()} {name}"
                yield Destination(words, note, DetailSubject(verb.subject, name), verb.id)


def found(state: State, text: str) -> list[Destination]:
    """Return the entries that match, the closest first; verbs only once something is typed."""
    if state.view is None:
        return []
    typed = " ".join(text.casefold().split())
    close: list[Destination] = []
    others: list[Destination] = []
    for each in destinations(state.view):
        if each.verb_id and not typed:
            break
        words = each.words.casefold()
        if words == typed or each.subject.name.casefold() == typed:
            close.append(each)
        elif matches(typed, f"{words} {each.note}"):
            others.append(each)
            if len(others) >= MOST_FOUND:
                break
    others.sort(key=lambda each: not each.words.casefold().startswith(typed))
    return [*close, *others][:MOST_FOUND]
