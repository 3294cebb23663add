"""Each record of the core's state has one writing module; the syntax tree shows it.

The writer is named in the record's docstring. ``tools/record_writers.py`` finds the writes, and the
second half of this module tests it on code with all kinds of writes.
"""

import re
from pathlib import Path

import pytest
from record_writers import CORE, Writers, core_writers
from typed_code import TypedCode

WRITERS_OF_RULES = {
    "Pace": "monitoring.task_watch",
    "Levels": "monitoring.divergence",
    "LossScale": "monitoring.divergence",
    "Experience": "lifecycle.transition_times",
    "Transition": "lifecycle.transition_times",
}
"""Objects of the rules that the state holds. Rules do not know the modules that use them."""


@pytest.fixture(scope="module")
def core() -> Writers:
    return core_writers()


@pytest.mark.timeout(300)
def test_each_record_has_the_writer_that_its_docstring_names(core: Writers) -> None:
    assert len(core.records) >= 40, "the state was not found whole"
    found = {name: sorted(modules) for name, modules in core.modules_by_record().items()}
    assert found == {name: [f"{CORE}.{_named_writer(core, name)}"] for name in core.records}


def _named_writer(core: Writers, record: str) -> str:
    name = record.rpartition(".")[2]
    docstring = core.docstring(record)
    named = re.search(r"ritten\s+by\s+``([\w.]+)``", docstring)
    writer = WRITERS_OF_RULES.get(name) or (named[1] if named else None)
    assert writer is not None, f"the docstring of {record} names no writer"
    return writer


RECORDS = '''
from dataclasses import dataclass, field

@dataclass
class Meter:
    """An object with a method that changes it."""
    total: int = 0
    marks: list[int] = field(default_factory=list)
    def add(self, amount: int) -> None:
        self._raise(amount)
    def _raise(self, amount: int) -> None:
        marks = self.marks
        marks.append(amount)
    def doubled(self) -> int:
        return 2 * self.total

@dataclass(frozen=True)
class Spec:
    """Frozen: no record."""
    sizes: tuple[int, ...] = ()

@dataclass
class Record:
    number: int = 0
    names: list[str] = field(default_factory=list)
    lists: dict[str, list[int]] = field(default_factory=dict)
    parts: dict[int, "Part"] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    spec: Spec = Spec()

@dataclass
class Part:
    is_done: bool = False

@dataclass
class State:
    records: dict[str, Record]

def names_of(record: Record) -> list[str]:
    return record.names

def put(record: Record, number: int) -> None:
    """A setter in disguise."""
    record.number = number

def put_both(record: Record, number: int) -> None:
    put(record, number)

def note(record: Record, number: int) -> None:
    record.number = max(record.number, number)

def enlarge(names: list[str]) -> None:
    names.append("more")
'''

WRITES = {
    "record.number = 1": "Record.number",
    "record.number += 1": "Record.number",
    "record.number, other = 1, 2": "Record.number",
    "for record.number in range(3): pass": "Record.number",
    "del record.names": "Record.names",
    "record.names[0] = 'x'": "Record.names",
    "del record.names[0]": "Record.names",
    "record.names[:] = []": "Record.names",
    "record.names.append('x')": "Record.names",
    "record.lists['a'].append(1)": "Record.lists",
    "record.lists.setdefault('a', []).append(1)": "Record.lists",
    "for numbers in record.lists.values(): numbers.clear()": "Record.lists",
    "names = record.names; names += ['x']": "Record.names",
    "if (names := record.names): names.sort()": "Record.names",
    "names = record.names if record.number else []; names.clear()": "Record.names",
    "names_of(record).clear()": "Record.names",
    "enlarge(record.names)": "Record.names",
    "enlarge(names=record.names)": "Record.names",
    "bisect.insort(record.names, 'x')": "Record.names",
    "record.meter.add(1)": "Meter.",
    "meter = record.meter; meter.add(1)": "Meter.",
    "record.meter.total = 3": "Meter.total",
    "record.parts[0].is_done = True": "Part.is_done",
    "part = record.parts[0]; part.is_done = True": "Part.is_done",
    "for part in record.parts.values(): part.is_done = True": "Part.is_done",
    "[part] = [p for p in record.parts.values()]; part.is_done = True": "Part.is_done",
    "put(record, 1)": "Record.number",
    "def inner() -> None: record.number = 1": "Record.number",
    "setattr(record, 'number', 1)": "Record.",
    "object.__setattr__(record, 'number', 1)": "Record.",
    "getattr(record, 'names').append('x')": "Record.",
    "record.names.__setitem__(0, 'x')": "Record.names",
    "append = record.names.append; append('x')": "Record.names",
    "list(map(record.names.append, ['x']))": "Record.names",
    "functools.partial(enlarge, record.names)()": "Record.names",
    "random.shuffle(record.names)": "Record.names",
    "for numbers in sorted(record.lists.values()): numbers.clear()": "Record.lists",
    "for _, numbers in zip('ab', record.lists.values()): numbers.clear()": "Record.lists",
    "next(iter(record.lists.values())).clear()": "Record.lists",
    "for names in [record.names]: names.clear()": "Record.names",
    "held = {'a': record.names}; held['a'].clear()": "Record.names",
    "held = [n for n in record.lists.values()]; held[0].clear()": "Record.lists",
    "put_both(record, 1)": "Record.number",
    "unknown.number = 1": "?.number",
}
READS = (
    "other = record.number",
    "names = list(record.names); names.append('x')",
    "names = record.names[:]; names.append('x')",
    "fresh = copy.copy(record); fresh.number = 1",
    "other = record.meter.doubled()",
    "names = sorted(record.names); names.clear()",
    "note(record, 1)",
    "local: list[int] = []; local.append(1)",
)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What is found in a module that holds nothing but the statement, by statement."""
    folder = tmp_path_factory.mktemp("code") / "sample"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "records.py").write_text(RECORDS)
    statements = {f"m{number}": text for number, text in enumerate((*WRITES, *READS))}
    for name, text in statements.items():
        lines = [text] if text.startswith(("def ", "for ", "if ")) else text.split("; ")
        body = "".join(f"    {line}\n" for line in lines)
        (folder / f"{name}.py").write_text(
            "import bisect, copy, functools, random\nfrom typing import Any\nfrom sample.records import *\n"
            f"def act(record: Record, unknown: Any) -> None:\n{body}"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        writers = Writers(TypedCode(["sample"]), "sample.records.State")
    found: dict[str, set[str]] = {text: set() for text in statements.values()}
    for write in writers.writes:
        module = write.module.rpartition(".")[2]
        if module in statements:
            found[statements[module]].add(f"{write.record.rpartition('.')[2]}.{write.field}")
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("statement", WRITES)
def test_a_write_is_found(tried: dict[str, set[str]], statement: str) -> None:
    assert tried[statement] == {WRITES[statement]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("statement", READS)
def test_a_read_and_a_changed_copy_are_no_writes(
    tried: dict[str, set[str]], statement: str
) -> None:
    assert tried[statement] == set()


def test_code_with_errors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("number: int = 'text'\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="Incompatible types"):
        TypedCode(["broken"])
