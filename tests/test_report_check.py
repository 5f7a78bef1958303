"""Formats of ``check``: what people see, word for word, and what programs read, key by key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import CLEAN, ERROR, FIELD, FINDING, LIFETIME, LIVE_FINDING, SOURCE, Sample

from cachelint.model import Evidence
from cachelint.report import Style, formats, renderer
from cachelint.report.excerpt import Span, excerpt
from cachelint.report.text import width

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def shown(name: str, report: Sample, **style: Any) -> str:
    return "".join(renderer("check", name)(report, Style(**style)))


def test_formats_are_discovered() -> None:
    assert formats("check") == (
        "concise",
        "full",
        "github",
        "gitlab",
        "grouped",
        "json",
        "json-lines",
        "junit",
        "markdown",
        "sarif",
    )
    with pytest.raises(ValueError, match="unknown format 'yaml'; one of concise, "):
        renderer("check", "yaml")


FULL = """\
kernels/exp.py:5:9: CL104 [*] Exp keeps `y`, its own output, on ctx
  |
3 |     def forward(ctx, x, scale):
4 |         y = kernels.exp(x, scale)
5 |         ctx.y = y
  |         ^^^^^
6 |         ctx.scale = scale
7 |         return y
  |
  = why: `y` is what forward returns
  = do: save `y` with ctx.save_for_backward
  = fix: safe, `cachelint fix`

layers/relu.py:12:9: CL101 Relu keeps `x`, a live input, in self.last_input
   = why: `x` is a forward input
   = do: read the live input `x`
   = fix: unsafe, `cachelint fix --unsafe`: read `x` in backward

"""


def test_full() -> None:
    report = Sample(findings=(FINDING, LIVE_FINDING))
    assert shown("full", report) == FULL
    coloured = shown("full", report, colour=True)
    assert coloured != FULL
    assert ESCAPES.sub("", coloured) == FULL
    assert shown("full", CLEAN) == ""


def test_full_without_a_verdict_takes_the_words_of_the_fix() -> None:
    text = shown("full", Sample(types=(), findings=(replace(FINDING, code="CL999"),)))
    assert "= why" not in text
    assert "= do: save `y` with ctx.save_for_backward\n" in text


def test_concise_and_grouped() -> None:
    assert shown("concise", Sample()) == (
        "kernels/exp.py:5:9: CL104 [*] Exp keeps `y`, its own output, on ctx\n"
        "layers/relu.py:12:9: CL101 Relu keeps `x`, a live input, in self.last_input\n"
        "layers/a b,c.py:2:1: CL301 4 tensors | 100% stay <alive> over the addition\n"
    )
    report = Sample(findings=(FINDING, replace(FINDING, line=50, column=3), LIVE_FINDING))
    assert shown("grouped", report) == (
        "kernels/exp.py:\n"
        "  5:9   CL104 [*] Exp keeps `y`, its own output, on ctx\n"
        "  50:3  CL104 [*] Exp keeps `y`, its own output, on ctx\n"
        "\n"
        "layers/relu.py:\n"
        "  12:9  CL101 Relu keeps `x`, a live input, in self.last_input\n"
        "\n"
    )


def test_json_has_the_promised_keys() -> None:
    document = json.loads(shown("json", Sample()))
    assert document["schema"] == 1
    first, second, third = document["findings"]
    assert list(first) == [
        "code",
        "name",
        "path",
        "line",
        "column",
        "end_line",
        "end_column",
        "message",
        "type",
        "field",
        "class",
        "fix",
    ]
    assert (first["class"], first["type"], first["field"]) == ("SAVE", "Exp", "y")
    assert first["fix"] == {"applicability": "safe", "description": "save `y` with ctx.save_for_backward"}
    assert second["fix"]["applicability"] == "unsafe"
    assert (third["class"], third["fix"], third["type"], third["names"]) == (None, None, None, ["q", "k"])
    assert document["errors"] == [{"path": "layers/broken.py", "line": 7, "message": "invalid syntax: expected ':'"}]
    assert json.loads(shown("json", CLEAN))["findings"] == []


def test_json_lines() -> None:
    lines = [json.loads(line) for line in shown("json-lines", Sample()).splitlines()]
    assert lines[:3] == json.loads(shown("json", Sample()))["findings"]
    assert (lines[3]["code"], lines[3]["name"], lines[3]["line"]) == (None, "unreadable-file", 7)


def test_github_escapes_what_its_commands_are_made_of() -> None:
    lines = shown("github", Sample(findings=(FINDING, LIFETIME))).splitlines()
    assert lines[0].endswith(
        " title=cachelint (CL104),file=kernels/exp.py,line=5,col=9,endLine=5,endColumn=14"
        "::kernels/exp.py:5:9: CL104 Exp keeps `y`, its own output, on ctx"
    )
    assert lines[1].endswith(
        " title=cachelint (CL301),file=layers/a b%2Cc.py,line=2,endLine=3"
        "::layers/a b,c.py:2:1: CL301 4 tensors | 100%25 stay <alive>%0Aover the addition"
    )
    assert lines[2] == (
        "::error title=cachelint,file=layers/broken.py,line=7::layers/broken.py:7: invalid syntax: expected ':'"
    )
    assert len(lines) == 3


def test_gitlab_fingerprints_survive_an_edit_above() -> None:
    twice = (FINDING, replace(FINDING, line=6), LIFETIME, LIVE_FINDING)
    before = json.loads(shown("gitlab", Sample(findings=twice)))
    moved = tuple(replace(finding, line=finding.line + 40, end_line=finding.end_line + 40) for finding in twice)
    after = json.loads(shown("gitlab", Sample(findings=moved)))
    marks = [issue["fingerprint"] for issue in before]
    assert marks == [issue["fingerprint"] for issue in after]
    assert len(set(marks)) == len(marks) == 5
    assert before[0]["location"]["positions"]["begin"] == {"line": 5, "column": 9}
    assert {issue["severity"] for issue in before[:-1]} <= {"critical", "major", "minor"}
    assert before[-1]["severity"] == "blocker"
    assert before[-1]["check_name"] == "unreadable-file"


def test_junit_parses_and_counts() -> None:
    broken = replace(FINDING, message="a \x1b[31m & <b> \ufffe \ud800 message")
    suites = ElementTree.fromstring(shown("junit", Sample(findings=(broken, LIFETIME))).encode())
    assert {key: suites.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "2",
        "errors": "1",
    }
    assert [suite.get("name") for suite in suites] == ["kernels/exp.py", "layers/a b,c.py", "layers/broken.py"]
    failure = suites.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == "a \ufffd[31m & <b> \ufffd \ufffd message"
    assert (failure.text or "").endswith("\nwhy: `y` is what forward returns\ndo: save `y` with ctx.save_for_backward")
    error = suites.find("testsuite/testcase/error")
    assert error is not None
    assert error.get("message") == ERROR.message
    clean = ElementTree.fromstring(shown("junit", CLEAN))
    assert (clean.get("tests"), clean.get("failures"), len(clean.findall("testsuite/testcase"))) == ("1", "0", 1)


def test_markdown_cells_stay_cells() -> None:
    text = shown("markdown", Sample(findings=(FINDING, LIFETIME)))
    table, _, rest = text.partition("\n\n")
    lines = table.splitlines()
    assert lines[0].startswith("| Rule")
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) == 5
    assert "[layers/a b,c.py:2](layers/a%20b%2Cc.py#L2)" in lines[3]
    assert r"4 tensors \| 100% stay \<alive\> over the addition" in lines[3]
    assert rest == ("Not read:\n\n- [layers/broken.py:7](layers/broken.py#L7): invalid syntax: expected ':'\n")
    assert shown("markdown", CLEAN) == "No findings.\n"


def required(node: dict[str, Any], **kinds: type | Callable[[Any], bool]) -> None:
    """Every key is there and of its kind; no value is null, which SARIF's properties may not be."""
    for key, kind in kinds.items():
        value = node[key]
        assert isinstance(value, kind) if isinstance(kind, type) else kind(value), (key, value)


def is_place(place: dict[str, Any]) -> bool:
    physical = place["physicalLocation"]
    required(physical["artifactLocation"], uri=lambda uri: re.fullmatch(r"[!#-;=?-\[\]_a-z~%]+", uri) is not None)
    region = physical["region"]
    return all(isinstance(value, int) and value >= 1 for value in region.values()) and region["startLine"] >= 1


def test_sarif_has_the_shape_of_2_1_0() -> None:
    field = replace(FIELD, evidence=(Evidence("a dir/é.py", 3, "made here"),))
    report = Sample(types=(replace(Sample().types[0], fields=(field,)),))
    log = json.loads(shown("sarif", report))
    required(log, version=lambda text: text == "2.1.0", runs=list)
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    required(driver, name=str, version=str, rules=list)
    assert [rule["id"] for rule in driver["rules"]] == ["CL101", "CL104", "CL301"]
    for rule in driver["rules"]:
        required(rule, id=str, name=str, shortDescription=dict, defaultConfiguration=dict)
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    assert len(run["results"]) == 3
    for result in run["results"]:
        required(result, ruleId=str, ruleIndex=int, message=dict, locations=list, partialFingerprints=dict)
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert all(map(is_place, result["locations"]))
        assert all(map(is_place, result["relatedLocations"]))
    related = run["results"][0]["relatedLocations"]
    assert related[0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20dir/%C3%A9.py"
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert all(is_place(note["locations"][0]) for note in invocation["toolExecutionNotifications"])
    assert json.loads(shown("sarif", CLEAN))["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_excerpt_puts_carets_under_tabs_and_wide_characters() -> None:
    line = "\tself.数 = x\x1b[2J  # \u202e"
    start = line.index("self") + 1
    shown_lines = list(excerpt([line], Span(1, start, 1, start + len("self.数"))))
    assert shown_lines == [
        "  |",
        "1 |     self.数 = x\ufffd[2J  # \ufffd",
        "  |     ^^^^^^^",
        "  |",
    ]


def test_excerpt_of_a_long_line_shows_the_span() -> None:
    line = "x = [" + "0, " * 200 + "]; self.kept = x"
    start = line.index("self.kept") + 1
    shown_lines = list(excerpt([line], Span(1, start, 1, start + 9)))
    text, marks = shown_lines[1], shown_lines[2]
    assert text.startswith("1 | ...")
    assert len(text) < 180
    assert text[marks.index("^") : marks.index("^") + 9] == "self.kept"


def test_excerpt_of_a_long_span_leaves_out_its_middle() -> None:
    lines = [f"line {number}" for number in range(1, 60)]
    shown_lines = list(excerpt(lines, Span(10, 1, 40, 8)))
    assert sum(line.startswith("10 |") for line in shown_lines) == 1
    assert any(line.startswith("..") for line in shown_lines)
    assert len(shown_lines) < 30


def test_excerpt_outside_the_file_is_empty() -> None:
    assert list(excerpt(SOURCE.splitlines(), Span(99, 1, 99, 2))) == []
    assert list(excerpt([], Span(1, 1, 1, 1))) == []


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(lambda s: "".join(s.splitlines())),
        max_size=9,
    ),
    st.tuples(*[st.integers(0, 50)] * 4),
)
def test_excerpt_takes_any_text_and_any_span(lines: list[str], numbers: tuple[int, int, int, int]) -> None:
    line, column, end_line, end_column = numbers
    for text in excerpt(lines, Span(line, column, end_line, end_column)):
        assert "\n" not in text
        assert "\x1b" not in text
        assert width(text) <= 400
