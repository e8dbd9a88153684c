"""Findings are laid out once: the terminal leaves out what has no room, the page shows all."""

import json
import shlex
from html import unescape

import pytest

from reports.pages.planning.findings import render
from sim.findings import (
    Action,
    Actions,
    Cell,
    Column,
    Commands,
    Drawings,
    Findings,
    Heading,
    Headline,
    Lines,
    Links,
    Table,
    TonedLine,
)
from sim.planning.answers import findings_of
from sim.planning.answers.brief import every_row, first_lines
from sim.terminal.console import WIDTH, as_text
from sim.terminal.findings import actions_view, findings_view, parts_view
from tests import made_up, made_up_studies, made_up_verdicts

MADE_UP = {
    "ablate": ("ablate", made_up_studies.ablation),
    "claims": ("claims", made_up_verdicts.claims),
    "compare": ("compare", made_up.comparison),
    "diagnose": ("diagnose", made_up_studies.diagnosis),
    "find": ("find", made_up.highest_load),
    "plan": ("plan", made_up.fleet_plan),
    "split": ("plan", made_up.split_plan),
    "sensitivity": ("sensitivity", made_up_studies.uncertainty),
    "sweep": ("sweep", made_up.load_sweep),
}

TABLE = Table(
    "t",
    "Some numbers",
    (Column("Name", False), Column("Shown value"), Column("Further value", on_terminal=False)),
    tuple((Cell(f"row {n}", n), Cell(f"{n}.5", n), Cell(f"{n}.75", n)) for n in range(4)),
    shown=(1, 2),
)
ADVICE = Actions("In order:", (Action("met", "a setting", "Do it", "helps", "infersim run x"),))


def findings(*parts: Table | Actions | Commands | Lines) -> Findings:
    sections = (Heading("summary", "Summary", parts),)
    return Findings("name", "kind", "1.0", Headline("good", "Yes.", "Because."), sections)


def test_a_terminal_shows_the_columns_and_rows_that_it_has_room_for() -> None:
    text = as_text(findings_view(findings(TABLE, Lines(("A sentence.",)))))
    assert "Shown value" in text
    assert "Further value" not in text
    assert [n for n in range(4) if f"row {n}" in text] == [1, 2]
    assert "2 more rows in result.json (--json) and on the page" in text
    assert text.index("Yes.") < text.index("Because.") < text.index("row 1")
    assert text.index("row 2") < text.index("A sentence.")


def test_an_answer_in_full_has_every_row() -> None:
    text = as_text(findings_view(every_row(findings(TABLE))))
    assert [n for n in range(4) if f"row {n}" in text] == [0, 1, 2, 3]
    assert "more rows" not in text


def test_columns_that_do_not_fit_go_on_below_under_the_same_names() -> None:
    names = [Column("gpu_memory_utilization", False), Column("engine", False)]
    values = [Column(f"value {n}") for n in range(12)]
    row = (Cell("0.95", 0.95), Cell("vllm", "vllm"), *(Cell(f"{n}99,999", n) for n in range(12)))
    wide = Table("t", "Many numbers", (*names, *values), (row,), keys=2)
    lines = as_text(findings_view(findings(wide))).splitlines()
    assert max(map(len, lines)) <= WIDTH
    rows = [line.split() for line in lines if "0.95" in line]
    assert len(rows) == 2
    assert all(found[:2] == ["0.95", "vllm"] for found in rows)
    assert [cell for found in rows for cell in found[2:]] == [f"{n}99,999" for n in range(12)]
    assert sum("Many numbers" in line for line in lines) == 1


def test_tables_of_one_row_share_its_columns_and_its_name_is_whole() -> None:
    values = [Column(f"value {n}") for n in range(8)]
    row = (Cell("r1", "r1"), *(Cell(f"{n}99,999.9", n) for n in range(8)))
    wide = Table("t", "Numbers", (Column("Variant", False), *values), (row,))
    lines = as_text(findings_view(findings(wide))).splitlines()
    assert sum(line.split()[:1] == ["Variant"] for line in lines) == 2
    assert [len(line.split()) for line in lines if "r1" in line] == [5, 5]


def test_words_of_a_cell_fold_before_columns_do_not_fit() -> None:
    columns = (*TABLE.columns[:1], *(Column(f"value {n}") for n in range(8)), Column("End", False))
    numbers = [Cell("12,345.6", 0.0)] * 8
    said = Table("t", "", columns, ((Cell("row", 0), *numbers, Cell("too short to tell", "")),))
    lines = as_text(findings_view(findings(said))).splitlines()
    (first,) = (line for line in lines if "12,345.6" in line)
    assert first.split()[-2:] == ["too", "short"] or first.split()[-1] == "too"
    assert any(line.split()[-1:] == ["tell"] for line in lines)


def test_a_terminal_is_shown_no_more_lines_than_it_has_room_for() -> None:
    text = as_text(findings_view(findings(Lines(tuple(f"line {n}." for n in range(70))))))
    assert "line 59." in text
    assert "line 60." not in text
    assert "10 more lines in result.json (--json) and on the page" in text


def test_other_pages_are_linked_and_the_best_of_a_column_has_a_star() -> None:
    best = Table("t", "Means: * is the best", TABLE.columns[:1], ((Cell("* 5", 5),),))
    found = Heading("runs", "Runs", (Links("See", (("a < b", "runs/1"), ("c", "runs/2"))), best))
    page = " ".join(render("sweep", made_up.load_sweep(), found).split())
    assert 'See <a href="runs/1">a &lt; b</a>; <a href="runs/2">c</a>.</p>' in page
    assert "Means: \u2605 is the best" in page
    assert ">\u2605 5<" in page
    assert page.index('id="summary"') < page.index('id="runs"') < page.index('id="figures"')


def test_actions_are_printed_whole_and_after_all_else() -> None:
    found = findings(ADVICE, TABLE)
    assert "infersim run x" not in as_text(findings_view(found))
    assert actions_view(found).plain.splitlines() == [
        *("In order:", "1. Do it (a setting)", "   helps", "   infersim run x")
    ]
    long = actions_view(
        findings(ADVICE._replace(each=(ADVICE.each[0]._replace(title="Do " * 28),)))
    )
    assert [line.strip() for line in long.plain.splitlines()][2:4] == ["helps", "a setting"]
    assert actions_view(findings(TABLE)).plain == ""


def test_what_meets_the_slo_as_the_first_action_does_is_named_in_the_first_lines() -> None:
    def action(title: str, effect: str = "SLO met", *, meets: bool = True) -> Action:
        return Action(effect, "", title, "", "infersim run x", meets)

    open_one = action("2 slots", "SLO too close to call")
    each = (action("2 GPUs"), action("2 replicas"), open_one, action("none", meets=False))
    short = first_lines(findings(Actions("In order:", each)))
    assert actions_view(short).plain.splitlines() == [
        *("In order:", "1. 2 GPUs", "", "   infersim run x", "also: 2 replicas")
    ]
    alone = first_lines(findings(Actions("In order:", (each[3], each[3]))))
    assert "also" not in actions_view(alone).plain


def test_columns_that_fold_share_the_room_that_others_leave() -> None:
    columns = (Column("#"), Column("What", False, fold=1), Column("Why", False, fold=3))
    row = (Cell("1", 1), Cell("a few words of it " * 4, None), Cell("many words of it " * 20, None))
    text = as_text(findings_view(findings(Table("t", "Some texts", columns, (row,)))))
    first = next(line for line in text.splitlines() if line.startswith("1 "))
    assert 15 < first.index("many") < 35, "a quarter of the room is that of the first text"
    assert max(map(len, text.splitlines())) <= 88
    assert text.count("many") == 20
    assert text.count("few") == 4


def test_a_terminal_shows_commands_in_lines_that_a_shell_reads_as_one() -> None:
    command = "infersim run x.yaml " + "--set fleet.0.replicas=2 " * 6 + "--set 'slo={ttft: 1s}'"
    shown = Commands("First", (("Simulate it", command),))
    folded = Commands("Second", (("Simulate it", "infersim run y.yaml"),), on_terminal=False)
    text = as_text(findings_view(findings(shown, folded)))
    assert max(map(len, text.splitlines())) <= 88
    written = text[text.index("infersim run") :].replace("\\\n", " ")
    assert shlex.split(written) == shlex.split(command)


@pytest.mark.parametrize("kind", MADE_UP)
def test_terminal_and_page_show_every_table_of_a_decision(kind: str) -> None:
    command, made = MADE_UP[kind]
    document = made()
    found = findings_of(command, json.loads(json.dumps(document)))
    text = " ".join(as_text(findings_view(found)).split())
    page = unescape(render(command, document))
    for part in (part for section in found.sections for part in section.parts):
        if isinstance(part, Table):
            assert {len(row) for row in part.rows} <= {len(part.columns)}
            assert f'id="table-{part.name}"' in page
            assert (" ".join(part.caption.split()) in text) == part.on_terminal
        elif isinstance(part, Drawings):
            assert all(f'id="figure-{each.name}"' in page for each in part.each)
        elif isinstance(part, Commands):
            assert (part.title in text) == part.on_terminal
            assert all(command in page for _, command in part.each)
        elif isinstance(part, Lines):
            assert all(" ".join(line.split()) in text for line in part.each)


def test_tables_with_a_look_stand_whole_and_lines_keep_their_indent() -> None:
    long = (
        "a name that is far too long to stand next to three numbers in one line of a terminal " * 2
    )
    columns = (Column("", False, fold=1), Column("Count"), Column("Why", False, prose=True))
    row = (Cell(long, long), Cell("12", 12), Cell("few words", "few words"))
    framed = Table("t", "Title", columns, (row,), look="framed", note="below it")
    head, *_, note = as_text(parts_view([framed])).splitlines()
    assert head == "Title"
    assert note.strip() == "below it"
    told = as_text(parts_view([framed, framed._replace(look="compact")]))
    assert "…" in told  # a name stays in one line
    assert max(map(len, told.splitlines())) <= 88
    lines = [TonedLine((("one ", "strong"), ("two", "bad"))), Lines(("three",), "", indent=3)]
    assert as_text(parts_view(lines)).splitlines() == ["one two", "   three"]
