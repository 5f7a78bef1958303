"""The catalogue: lazy listing, typed refusals, and the shipped rules themselves."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

from cachelint import catalogue, docs
from cachelint.catalogue import CatalogueError
from cachelint.report.rulepage import markdown, plain, shape

TOML = """\
code = "CL901"
name = "kept-thing"
summary = "a thing is kept"
severity = "warning"
fixable = "safe"
default = true
dialects = ["torch-function"]
fixture = "fixtures/cases/CL901.py"
reference = "__init__"
references = ["https://example.org/contract", "torch.autograd.Function, notes"]

[[bad]]
note = "The value hangs on ctx."
code = '''
def forward(ctx, x):
    ctx.x = x
'''

[[good]]
code = '''
def forward(ctx, x):
    ctx.save_for_backward(x)
'''
"""

PAGE = """\
## What it finds

A *thing*. It is kept.

## Why it matters

It leaks.

```python
## not a heading
```

## What to do

Save it.

## When it stays silent

Always, nearly.
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of one complete rule, with its fixture and its reference layer."""
    layers = tmp_path / "package" / "runtime" / "layers"
    layers.mkdir(parents=True)
    (layers / "__init__.py").touch()
    monkeypatch.setattr(catalogue, "PACKAGE", tmp_path / "package")
    (tmp_path / "fixtures" / "cases").mkdir(parents=True)
    (tmp_path / "fixtures" / "cases" / "CL901.py").touch()
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "CL901-kept-thing.toml").write_text(TOML)
    (rules / "CL901-kept-thing.md").write_text(PAGE)
    (rules / "operators").mkdir()
    return rules


def test_listing_reads_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "CL902-broken.toml").write_bytes(b"\xff not toml")
    (root / "notes.toml").touch()
    monkeypatch.setattr(builtins, "open", None)
    assert catalogue.names(root) == {"CL901": "kept-thing", "CL902": "broken"}


def test_a_rule_is_found_by_code_or_name_in_any_case(root: Path) -> None:
    assert {catalogue.find(query, root) for query in ("CL901", "cl901", "kept-thing", " Kept-Thing ")} == {"CL901"}
    with pytest.raises(CatalogueError, match="no rule 'CL9'"):
        catalogue.find("CL9", root)


def test_a_complete_rule_loads(root: Path) -> None:
    rule = catalogue.load("CL901", root)
    assert (rule.code, rule.name, rule.default) == ("CL901", "kept-thing", True)
    assert rule.bad[0].code == "def forward(ctx, x):\n    ctx.x = x\n"
    assert (rule.bad[0].findings, rule.good[0].findings) == (1, 0)
    assert "## not a heading" in rule.section("Why it matters")
    assert rule.section("Proof") == ""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('summary = "a thing is kept"\n', "", "no summary"),
        ('summary = "a thing is kept"', 'summary = " "', "summary is empty"),
        ('"warning"', '"fatal"', "severity must be one of"),
        ('"safe"', '"maybe"', "fixable must be one of"),
        ("default = true", 'default = "yes"', "default must be a bool"),
        ("default = true", "default = true\ncolour = 1", "unknown key colour"),
        ('dialects = ["torch-function"]', "dialects = []", "dialects is empty"),
        ("[[bad]]", "[[good]]", "no bad"),
        ("[[good]]", "[[bad]]", "no good"),
        ('note = "The', 'remark = "The', "unknown key remark"),
        ("[[good]]", "[[good]]\nfindings = 2", "cannot have 2 findings"),
        ('"kept-thing"', '"other-thing"', "file name must be"),
        ("cases/CL901.py", "cases/CL999.py", "fixture 'fixtures/cases/CL999.py' does not exist"),
        ('"__init__"', '"activations/none"', "reference 'activations/none'"),
        ("[[bad]]", "[[bad", "not readable as TOML"),
    ],
)
def test_an_incomplete_rule_is_refused(root: Path, old: str, new: str, complaint: str) -> None:
    path = root / "CL901-kept-thing.toml"
    assert old in TOML
    path.write_text(TOML.replace(old, new, 1))
    with pytest.raises(CatalogueError, match=complaint) as caught:
        catalogue.load("CL901", root)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (PAGE.replace("## What to do\n\nSave it.\n", ""), "nothing under 'What to do'"),
        (PAGE.replace("Always, nearly.\n", ""), "nothing under 'When it stays silent'"),
        (PAGE + "\n## Colophon\n\nx\n", "unknown heading 'Colophon'"),
        (None, "page is not readable"),
    ],
)
def test_a_page_without_its_headings_is_refused(root: Path, page: str | None, complaint: str) -> None:
    path = root / "CL901-kept-thing.md"
    path.unlink() if page is None else path.write_text(page)
    with pytest.raises(CatalogueError, match=complaint):
        catalogue.load("CL901", root)


def test_a_wheel_needs_no_fixtures(root: Path) -> None:
    (root.parent / "fixtures" / "cases" / "CL901.py").unlink()
    (root.parent / "fixtures" / "cases").rmdir()
    (root.parent / "fixtures").rmdir()
    assert catalogue.load("CL901", root).code == "CL901"


def test_pages(root: Path) -> None:
    rule = catalogue.load("CL901", root)
    text = markdown(rule, level=2)
    assert text.startswith("## CL901 kept-thing\n\na thing is kept\n")
    assert "- **Fixable:** yes, safely\n" in text
    assert "### Reported\n\nThe value hangs on ctx.\n\n```python\ndef forward(ctx, x):\n    ctx.x = x\n```\n" in text
    assert text.index("### What to do") < text.index("### Reported") < text.index("### When it stays silent")
    assert "- <https://example.org/contract>\n- torch.autograd.Function, notes\n" in text
    flat = plain(rule)
    assert "```" not in flat
    assert "WHAT TO DO\n\nSave it.\n" in flat
    assert "        ctx.save_for_backward(x)\n" in flat
    assert shape(rule)["good"] == [{"code": rule.good[0].code, "note": ""}]


CODES = tuple(catalogue.names())


@pytest.mark.parametrize("code", CODES)
def test_shipped_rule(code: str) -> None:
    rule = catalogue.load(code)
    assert not rule.summary.endswith(".")
    assert len(rule.summary) <= 110
    for example in (*rule.bad, *rule.good):
        ast.parse(example.code)


def test_the_docs_page_is_current() -> None:
    assert docs.main(["--check"]) == 0, "run `python -m cachelint.docs`"
