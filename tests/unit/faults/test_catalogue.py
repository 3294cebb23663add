"""The catalogue: complete, consistent, and with errors that name the place."""

from pathlib import Path

import pytest

from profiles.faults.catalogue import default_catalogue, load_catalogue
from profiles.faults.line_matching import Matcher
from profiles.faults.matching.literals import Literal, needs_digit, needs_of, parsed
from profiles.faults.matching.rules import Rule, rule_of
from profiles.faults.matching.screen import LiteralScreen
from profiles.faults.precedence import Precedence
from profiles.faults.status import Severity
from profiles.faults.table_rows import CatalogueError

_DATA = Path(__file__).parents[3] / "profiles" / "faults" / "data"


def _copy(folder: Path, changed: str, old: str, new: str) -> Path:
    for file in _DATA.rglob("*.toml"):
        target = folder / file.relative_to(_DATA)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text()
        target.write_text(text.replace(old, new, 1) if file.name == changed else text)
    return folder


def test_every_status_has_an_entry_that_leads_to_it() -> None:
    catalogue = default_catalogue()
    entries = [*catalogue.entries.values(), *catalogue.xids.entries]
    assert {entry.status for entry in entries} == {*catalogue.statuses}
    assert catalogue.statuses["ecc_error"].severity is Severity.SEV1
    assert catalogue.statuses["none"].severity is Severity.NONE


def test_every_entry_names_its_source_and_has_a_first_response() -> None:
    catalogue = default_catalogue()
    for entry in [*catalogue.entries.values(), *catalogue.xids.entries]:
        assert entry.source
        assert entry.response or entry.status.facts.response


def test_the_vendors_table_is_there_as_a_whole() -> None:
    codes = {code.number: code for code in default_catalogue().xids.codes}
    assert len(codes) > 100
    assert codes[79].status == "gpu_driver_error"
    assert codes[48].status == "ecc_error"


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("cuda.toml", 'status = "cuda_error"', 'status = "cuda_eror"', ["cuda.toml", "status"]),
        ("cuda.toml", "'sanitizer'", "'sanitizer'", []),
        ("cuda.toml", "unless = ['oom-kill'", "unless = ['(oom-kill'", ["device-oom", "regular"]),
        ("cuda.toml", "'illegal memory access'", "'(?<!a+)illegal'", ["illegal-access", "regular"]),
        ("cuda.toml", "device-side assert", "device-side (assert", ["device-assert", "regular"]),
        ("cuda.toml", 'id = "sanitizer"', 'id = "device-assert"', ["device-assert", "already in"]),
        ("combinations.toml", '"task-blocked"', '"task-bloked"', ["task-bloked"]),
        ("statuses.toml", "[nan_loss]", "[nan_los]", ["nan_loss", "missing"]),
        (
            "statuses.toml",
            'severity = "SEV1"',
            'severity = "SEV4"',
            ["lost_connection", "severity", "'SEV4'", "did you mean 'SEV"],
        ),
        (
            "statuses.toml",
            "may_be_echo = true\n",
            "",
            ["'lost_connection'", "column 'may_be_echo' is missing"],
        ),
        (
            "statuses.toml",
            "may_be_echo = true",
            "may_be_eco = true",
            ["'lost_connection'", "no column 'may_be_eco'; did you mean 'may_be_echo'?"],
        ),
        (
            "statuses.toml",
            'measured_as = ["gpu_ecc"',
            'measurd_as = ["gpu_ecc"',
            ["'ecc_error'", "no column 'measurd_as'", "did you mean 'measured_as'?"],
        ),
        (
            "statuses.toml",
            '"gpu_ecc"',
            '"gpu_lost"',
            ["'gpu_driver_error'", "'gpu_lost' already means 'ecc_error'"],
        ),
        (
            "statuses.toml",
            '"gpu_ecc"',
            '"gpu_eccs"',
            ["'ecc_error'", "measured_as.0", "did you mean 'gpu_ecc'?"],
        ),
        (
            "statuses.toml",
            "names_device = true",
            "names_device = 1",
            ["'ecc_error'", "names_device", "boolean"],
        ),
        (
            "statuses.toml",
            'in_rank_counts_as = "other_network_error"',
            'in_rank_counts_as = "other_netwrk_error"',
            ["'lost_connection'", "in_rank_counts_as", "did you mean 'other_network_error'?"],
        ),
        (
            "statuses.toml",
            'severity = "none"',
            'severity = "SEV3"',
            ["'none'", "belongs to the status"],
        ),
        (
            "cuda.toml",
            'status = "cuda_error"',
            'status = "cuda_eror"',
            ["cuda.toml: entry", "no status 'cuda_eror'; did you mean 'cuda_error'?"],
        ),
        ("cuda.toml", "patterns =", "pattern =", ["no column 'pattern'; did you mean 'patterns'?"]),
        ("cuda.toml", "unless =", "unles =", ["no column 'unles'; did you mean 'unless'?"]),
        ("cuda.toml", "[[entry]]", "[[entri]]", ["no table 'entri'; did you mean 'entry'?"]),
        (
            "cuda.toml",
            'precedence = "cuda"',
            'precedence = "cudda"',
            ["precedence", "did you mean 'cuda'?"],
        ),
        (
            "combinations.toml",
            'status = "task_hang"',
            'status = "task_hung"',
            ["combinations.toml: combination", ": status: there is no status 'task_hung'"],
        ),
        ("numbers.toml", '"progress"', '"progres"', ["'progress' is missing"]),
        ("xid.toml", "number = 8", 'number = "8x"', ["xid.toml", "number"]),
        ("memory.toml", "[[entry]]", "[[entry", ["memory.toml", "TOML"]),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_place(
    tmp_path: Path, file: str, old: str, new: str, words: list[str]
) -> None:
    folder = _copy(tmp_path, file, old, new)
    if not words:
        assert load_catalogue(folder).entries
        return
    with pytest.raises(CatalogueError) as caught:
        load_catalogue(folder)
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "letters", "is_whole"),
    [
        (r"\bDBE\b", "dbe", True),
        (r"DBEs?", "dbe", False),
        (r"\s+UE\s+(?:row|memory)", "ue", True),
        (r"fell off the bus", "fell", False),
        (r"mlx5_core\b", "core", True),
    ],
)
def test_the_rarest_word_of_a_literal_is_whole_where_the_pattern_says_so(
    pattern: str, letters: str, is_whole: bool
) -> None:
    [literal] = needs_of(parsed(pattern))[0]
    assert (literal.part.letters, literal.part.is_whole) == (letters, is_whole)


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("timed? ?out", {"time"}),
        ("Connection (?:refused|reset)", {"connection refused", "connection reset"}),
        (r"wait(?:ing|ed) for \d+", {"waiting for ", "waited for "}),
        (r"c10d store", {"cd store"}),
        (r"\d+", set()),
        (r"(?:a|\d)", set()),
    ],
)
def test_literals_stand_in_every_match(pattern: str, literals: set[str]) -> None:
    found = {literal.text for rarest in needs_of(parsed(pattern))[:1] for literal in rarest}
    assert bool(found) == bool(literals)
    if pattern.startswith("Connection"):
        assert found == literals


@pytest.mark.parametrize(
    ("pattern", "sought"),
    [
        (r"\bDBE\b", {" dbe "}),
        (r"(?-i:DEBUG)\b[\]: |-]", {"debug "}),
        (r"\b(?:ice|i40e)\b.*", {" ice ", " ie "}),
        (r"\b(?:ice|ena)\w*", {" ice", " ena"}),
        (r"\bmlx5_core\b", {"mlx_core"}),
    ],
)
def test_words_are_sought_with_the_edges_that_the_pattern_asks_for(
    pattern: str, sought: set[str]
) -> None:
    assert {literal.sought for literal in needs_of(parsed(pattern))[0]} == sought


@pytest.mark.parametrize(
    ("pattern", "is_needed"),
    [
        (r"exit code -(?:9|11)", True),
        (r"rank \d+", True),
        (r"at [1-9]\d* of", True),
        (r"rank \d*", False),
        (r"Errno|code 28", False),
        (r"[^\d] left", False),
    ],
)
def test_a_pattern_knows_whether_it_needs_a_digit(pattern: str, is_needed: bool) -> None:
    assert needs_digit(parsed(pattern)) is is_needed


def test_every_pattern_of_the_shipped_catalogue_compiles() -> None:
    for entry in default_catalogue().entries.values():
        rule = rule_of(entry)
        assert all(p.expression.pattern for p in (*rule.patterns, *rule.unless))


def test_every_pattern_that_is_not_a_veto_has_a_literal_that_screens() -> None:
    # A piece of two letters stands in nearly every line, and slows down the reading of all.
    weak = [
        (entry.id, pattern)
        for entry in default_catalogue().entries.values()
        if not entry.is_veto
        for pattern in entry.patterns
        if not all(
            _screens(literal) for literals in needs_of(parsed(pattern))[:1] for literal in literals
        )
        or not needs_of(parsed(pattern))
    ]
    assert weak == []


def _screens(literal: Literal) -> bool:
    return literal.part.is_whole or len(literal.part.letters) >= 3


def rules_for(screen: LiteralScreen, line: bytes) -> tuple[Rule, ...]:
    return screen.rules_with(screen.texts_in(line), line)


def test_the_screen_lets_through_what_a_plain_search_finds() -> None:
    texts = (Path(__file__).with_name("specimens.jsonl")).read_text().replace("\\n", "\n")
    rules = [rule_of(entry) for entry in default_catalogue().entries.values()]
    screen = LiteralScreen(rules)
    for line in texts.splitlines()[::7]:
        passed = {rule.entry.id for rule in rules_for(screen, line.encode())}
        found = {rule.entry.id for rule in rules if rule.search(line, line)}
        assert found <= passed


def test_the_patterns_of_a_rule_keep_their_order() -> None:
    catalogue = default_catalogue()
    line = (
        b"link mlx5_4/1 subnet_prefix fe80:0000 lid 911 sm_lid 4 state DOWN physical_state POLLING"
    )
    [rule] = [r for r in rules_for(catalogue.screen, line) if r.entry.id == "port-state"]
    expressions = [pattern.expression.pattern for pattern in rule.patterns]
    assert len(expressions) > 1
    assert expressions == [p for p in catalogue.entries["port-state"].patterns if p in expressions]


def test_a_device_is_read_behind_the_prefixes_too(tmp_path: Path) -> None:
    folder = _copy(
        tmp_path, "network.toml", r"'link (?P<device>\w+): down'", r"'^link (?P<device>\w+): down'"
    )
    [sign] = Matcher(load_catalogue(folder)).read(1, b"[rank1]: link eth7: down")
    assert (sign.entry.id, sign.device) == ("link-down", "eth7")


def test_precedences_before_the_vetoes_name_faults_and_the_others_do_not() -> None:
    assert Precedence.HARDWARE.rank < Precedence.SOFTWARE.rank < Precedence.RESET.rank
    assert Precedence.CLEANUP.is_ranked
    assert not Precedence.VETO.is_ranked
    assert not Precedence.PROGRESS.is_ranked
